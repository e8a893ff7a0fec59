"""What the Python drivers share: requests from stdin, one JSON object a line, and an answer to each.

../field/driver_test.go says what is asked and answered.
"""

import base64
import json
import sys
import threading


class Refused(Exception):
    """An error with a code of Kafka's, or -1."""

    def __init__(self, code, text):
        super().__init__(text)
        self.code = code


def tell(answer):
    print(json.dumps(answer), flush=True)


def unpack(text):
    return None if text is None else base64.b64decode(text)


def pack(data):
    return None if data is None else base64.b64encode(data).decode()


def shown(partition, offset, timestamp, key, value, headers):
    """A record as it is answered."""
    return {
        "partition": partition,
        "offset": offset,
        "timestamp": timestamp,
        "key": pack(key),
        "value": pack(value),
        "headers": [{"key": k, "value": pack(v)} for k, v in headers or []],
    }


def headers_of(record):
    return [(h["key"], unpack(h["value"])) for h in record.get("headers") or []]


def when_told(leave):
    """Calls leave when stdin ends."""

    def wait():
        for _ in sys.stdin:
            pass
        leave()

    threading.Thread(target=wait, daemon=True).start()


def serve(actions, code_of, member):
    """Answers requests. actions maps what is asked to functions of a request; code_of tells an exception's code."""
    for line in iter(sys.stdin.readline, ""):
        request = json.loads(line)
        what = request["do"]
        if what == "member":
            member(request)
            return
        if what not in actions:
            tell({"unsupported": True})
            continue
        try:
            tell(actions[what](request))
        except Exception as e:  # whatever the client throws is what the test is about
            code = e.code if isinstance(e, Refused) else code_of(e)
            tell({"error": {"code": code, "text": f"{type(e).__name__}: {e}"}})
