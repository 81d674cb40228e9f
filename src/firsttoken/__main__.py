"""`python -m firsttoken` is `firsttoken`."""

from firsttoken.faces.cli.main import main

if __name__ == "__main__":
    main()
