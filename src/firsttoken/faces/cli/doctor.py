"""`firsttoken doctor`: what can be seen and done on this machine, found by trying it."""

from typing import Any

import click

from firsttoken.faces.cli.say import json_option, print_document
from firsttoken.report.document import document
from firsttoken.session.doctor import examine


@click.command()
@json_option
def command(as_json: bool) -> int:
    """What firsttoken can see and do here: /proc, ptrace, py-spy, NVML, cgroup, the runs' folder. Each is tried, nothing is changed."""
    rows: list[dict[str, Any]] = [{"id": item.id, "result": item.result, "fact": item.fact, "remedy": item.remedy} for item in examine()]
    if as_json:
        print_document(document("doctor", checks=rows))
    else:
        for row in rows:
            click.echo(f"{row['result']:<12} {row['id']:<18} {row['fact']}")
            if row["remedy"]:
                click.echo(f"{'':<12} {'':<18} → {row['remedy']}")
    return 1 if any(row["result"] == "fail" for row in rows) else 0
