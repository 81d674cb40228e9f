"""A terminal's screen for tests: enough of one to see what a person would, the lines that scrolled off included. It does not wrap."""

import re

_TOKEN = re.compile(r"\x1b\[(\?)?([\d;]*)([@-~])|\r|\n|[^\x1b\r\n]+")


class Screen:
    """`lines` is everything from the first line on, as if the screen were endlessly high."""

    def __init__(self) -> None:
        self.lines: list[str] = [""]
        self.row = self.column = 0
        self.modes: list[str] = []
        """Modes that were switched (`?25l`…): a program that switches none leaves none behind."""

    def feed(self, text: str) -> None:
        for token in _TOKEN.finditer(text):
            private, number, letter = token[1], token[2], token[3]
            if private:
                self.modes.append(token[0])
            elif letter == "A":
                self.row = max(self.row - int(number or 1), 0)
            elif letter == "K":
                self.lines[self.row] = self.lines[self.row][: self.column]
            elif letter == "J":
                self.lines[self.row] = self.lines[self.row][: self.column]
                del self.lines[self.row + 1 :]
            elif letter == "m":
                pass
            elif letter:
                raise AssertionError(f"not known to this screen: {token[0]!r}")
            elif token[0] == "\r":
                self.column = 0
            elif token[0] == "\n":
                self.row, self.column = self.row + 1, 0
                if self.row == len(self.lines):
                    self.lines.append("")
            else:
                line = self.lines[self.row].ljust(self.column)
                self.lines[self.row] = line[: self.column] + token[0] + line[self.column + len(token[0]) :]
                self.column += len(token[0])

    def shown(self) -> list[str]:
        return [line.rstrip() for line in self.lines if line.strip()]
