"""Verifies an account and lists its followers. Needs Python 3.9 or newer and no packages:

    OA_URL=http://127.0.0.1:3000 CLIENT_ID=... CLIENT_SECRET=... API_KEY=... python3 verify-and-list.py
"""

import json
import os
import sys
import urllib.error
import urllib.parse
import urllib.request

URL = os.environ.get("OA_URL", "http://127.0.0.1:3000")
HEADERS = {
    "x-client-id": os.environ["CLIENT_ID"],
    "x-client-secret": os.environ["CLIENT_SECRET"],
    "x-api-key": os.environ["API_KEY"],
}


def call(method, path, query=None):
    address = URL + path + ("?" + urllib.parse.urlencode(query, doseq=True) if query else "")
    try:
        with urllib.request.urlopen(urllib.request.Request(address, method=method, headers=HEADERS)) as answer:
            return json.load(answer)
    except urllib.error.HTTPError as error:
        sys.exit(f"{error.code}: {error.read().decode()}")


def followers():
    """Yields every follower, one page at a time."""
    cursor = {}
    while True:
        page = call("GET", "/api/audience", {"relationship": "following", "limit": 200, **cursor})
        if page is None:
            sys.exit("the API key is not active")
        yield from page["data"]
        if page["nextCursor"] is None:
            return
        cursor = {"cursor": page["nextCursor"]}


# None: nothing proves it yet.
OUTCOMES = {True: "ok  ", False: "FAIL", None: "?   "}
for check in call("POST", "/api/line-oa/verify")["checks"]:
    print(OUTCOMES[check["ok"]], check["name"], "-", check["message"])
for member in followers():
    print(member["id"], member["userId"], member["displayName"])
