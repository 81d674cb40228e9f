"""What somebody noted of curl and the like, into probes: requests with their answers, and when the report was taken. Never raises.

People write it in many ways: `GET URL -> 200 (0.1 s)`, `curl /health -> 200`, `000 (connection refused)` on the next line, `curl: (28)
Operation timed out after 60000 ms`. What is no request stays in `text`, where rules can search it.
"""

import re
from datetime import UTC, datetime

from firsttoken.model.attached import Asked, ProbeLine, Probes

_REQUEST = re.compile(r"\b(?P<method>GET|POST|HEAD)\s+(?P<url>(?:https?://)?[\w.:\[\]-]*/\S*|https?://\S+)")
_CURL = re.compile(r"(?:^|[$#] *)curl\b(?P<rest>.*)$")
_PATH = re.compile(r"(?P<url>https?://[^\s'\"]+|(?<![\w.])/(?:v\d|health|models|metrics|generate|api|info|ready|get_)[\w/.-]*)")
_STATUS = re.compile(r"(?:->|=>|:|HTTP/[\d.]+|^)\s*(?P<status>[1-5]\d\d)\b")
_NO_ANSWER = re.compile(
    r"\b(?:timed out|time[- ]?out|no (?:answer|response|reply)|did not (?:answer|return)|hangs?|hung|never (?:returns|answers))\b",
    re.IGNORECASE,
)
_REFUSED = re.compile(r"connection refused|failed to connect|could ?n.t connect|curl: \(7\)|\brefused\b", re.IGNORECASE)
_DURATION = re.compile(r"(?<![\w.])(?P<n>\d{1,9}(?:\.\d{1,6})?)\s*(?P<unit>ms|milliseconds?|s|sec(?:onds?)?|m|min(?:utes?)?|h|hours?)\b")
_TOKENS = re.compile(r"(?<![\w=])(?P<n>\d{1,7}) tokens\b")
_GENERATE = re.compile(r"completions|/generate|/api/chat|/embed|/rerank|/score|/responses|/infer|/invocations")
_READ = re.compile(r"/models|/metrics|model_info|server_info|/info\b|/version|/api/(?:ps|tags)")
_COUNTED = ["one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"]
_WORDS: dict[str, float] = {word: number for number, word in enumerate(_COUNTED, 1)}
_WORDS |= {"half an": 0.5, "an": 1, "a": 1, "fifteen": 15, "twenty": 20, "thirty": 30, "forty": 40, "fifty": 50, "sixty": 60}
_SPAN = rf"(?P<{{}}>\d{{{{1,6}}}}(?:\.\d+)?\+?|\b(?:{'|'.join(_WORDS)})(?=\s))\s*(?P<{{}}>s|sec(?:onds?)?|min(?:ute)?s?|h|hours?)\b"
_AGE = re.compile(
    rf"{_SPAN.format('n', 'unit')}\s*(?:after|since)\s+(?:the\s+)?(?P<what>last (?:log )?line|last line of the log|start(?:-?up)?|launch)",
    re.IGNORECASE,
)
_SAME = (
    r"\b(?:nothing|no (?:new|change|output|further|more|node|rank|other)|without (?:a|any) (?:new|further|other)|still|same|unchanged"
    r"|(?:has|have|did|does|do)(?: not|n.t) (?:mov|print|chang|advanc|com|said|say|log)\w*)\b"
)
_LATER = re.compile(
    rf"{_SPAN.format('n', 'unit')}\s*later\b.*{_SAME}|{_SAME}.*\b(?:after|for) {_SPAN.format('n2', 'unit2')}"
    rf"|{_SPAN.format('n3', 'unit3')}\s*(?:without (?:a |any )?(?:new |further )?(?:log )?(?:line|output)|of silence)"
    rf"|^# *(?:about |some |ca\.? |~)?{_SPAN.format('n4', 'unit4')} later\W*$",
    re.IGNORECASE,
)
_DATE = re.compile(
    r"(?P<iso>20\d\d-\d\d-\d\d[ T]\d\d:\d\d(?::\d\d)?)|(?P<date>[A-Z][a-z]{2} +\d{1,2} \d\d:\d\d:\d\d) \S+ (?P<year>20\d\d)\b"
)
_DATE_ALONE = re.compile(r"(?:[A-Z][a-z]{2} +)?[A-Z][a-z]{2} +\d{1,2} \d\d:\d\d:\d\d \S+ 20\d\d")
_OF_START = re.compile(r"\b(?:start|began|begun|launch|boot|creat|modif|since)", re.IGNORECASE)
_CURL_LIMIT = re.compile(r"(?:^| )(?:-m|--max-time) (?P<n>\d{1,6})")


def read_probes(text: str) -> Probes:
    lines: list[ProbeLine] = []
    since_start = since_last = at = None
    pending: str | None = None
    for raw in text.splitlines():
        line = raw.strip()
        age = _AGE.search(line)
        if age is not None and (line.startswith("#") or "report" in line.lower()):
            seconds = _seconds(age["n"], age["unit"])
            if age["what"].lower().startswith("last"):
                since_last = seconds
            else:
                since_start = seconds
            continue
        if line.startswith("#") or _DATE_ALONE.fullmatch(line):
            at = _date(line) or at
            later = _LATER.search(line)
            if later is not None and since_last is None:
                way = next(way for way in ("", "2", "3", "4") if later[f"n{way}"])
                since_last = _seconds(later[f"n{way}"], later[f"unit{way}"])
            continue
        request = _request(line)
        if request is None:
            if pending is not None and line and (answer := _answer(pending, pending, line)) is not None:
                lines.append(answer)
            pending = None
            continue
        answer = _answer(line, request, line)
        if answer is not None:
            lines.append(answer)
            pending = None
        else:
            pending = line
    return Probes(lines=tuple(lines), since_start=since_start, since_last_line=since_last, at=at, text=text)


def _date(line: str) -> float | None:
    """Unix seconds of a stamp that tells when somebody looked, not when something began."""
    match = _DATE.search(line)
    if match is None or _OF_START.search(line):
        return None
    try:
        if match["iso"]:
            return datetime.fromisoformat(match["iso"]).replace(tzinfo=UTC).timestamp()
        return datetime.strptime(f"{match['date']} {match['year']}", "%b %d %H:%M:%S %Y").replace(tzinfo=UTC).timestamp()
    except ValueError:
        return None


def _request(line: str) -> str | None:
    found = _REQUEST.search(line)
    if found is not None:
        return found["url"]
    curl = _CURL.search(line)
    if curl is None:
        return None
    path = _PATH.search(curl["rest"])
    return path["url"] if path is not None else None


def _answer(asked_by: str, _request_text: str, line: str) -> ProbeLine | None:
    """None where the line tells no answer."""
    match = _REQUEST.search(asked_by)
    url = match["url"] if match else (_request(asked_by) or "")
    tail = line.partition("->")[2] if "->" in line else line if line is not asked_by else ""
    tail = tail or (line[match.end() :] if match is not None and "->" not in line else "")
    status = _STATUS.search(f"->{tail}" if "->" in line else tail)
    code = int(status["status"]) if status else None
    refused = code is None and _REFUSED.search(tail) is not None
    timed_out = code is None and not refused and _NO_ANSWER.search(tail) is not None
    if code is None and not refused and not timed_out:
        return None
    generate = _GENERATE.search(url) is not None
    post = (match is not None and match["method"] == "POST") or generate
    asked = Asked.GENERATE if generate else Asked.READ if _READ.search(url) else Asked.HEALTH
    if match is not None and match["method"] == "POST" and asked is Asked.HEALTH:
        asked = Asked.GENERATE
    durations = [float(d["n"]) * _unit(d["unit"]) for d in _DURATION.finditer(tail)]
    limit = _CURL_LIMIT.search(asked_by)
    tokens = _TOKENS.search(tail)
    return ProbeLine(
        asked=asked,
        url=url,
        method="POST" if post else "GET",
        status=code,
        refused=refused,
        timed_out=timed_out,
        seconds=durations[0] if durations else float(limit["n"]) if limit and timed_out else None,
        tokens=int(tokens["n"]) if tokens else None,
        text=line[:500],
    )


def _seconds(number: str, unit: str) -> float:
    """`half an hour` and `four minutes` are said as often as `30 min`."""
    word = _WORDS.get(" ".join(number.lower().split()))
    return (float(number.rstrip("+")) if word is None else word) * _unit(unit)


def _unit(text: str) -> float:
    text = text.lower()
    if text.startswith("mil") or text == "ms":
        return 0.001
    return 60.0 if text.startswith("m") else 3600.0 if text.startswith("h") else 1.0
