"""Downloads a URL with interruptions, as a careful program does: Range with If-Range, then a check.

usage: resume.py requests|httpx URL TOKEN OUTPUT
"""

import base64
import hashlib
import os
import sys


def get(library, url, headers):
    """Yields the answer's status and fields, then its blocks until it ends or breaks off."""
    if library == "requests":
        import requests

        with requests.get(url, headers=headers, stream=True, timeout=60) as answer:
            yield answer.status_code, answer.headers
            try:
                yield from answer.iter_content(65536)
            except (requests.exceptions.ChunkedEncodingError, requests.exceptions.ConnectionError):
                pass
    else:
        import httpx

        with httpx.stream("GET", url, headers=headers, timeout=60) as answer:
            yield answer.status_code, answer.headers
            try:
                yield from answer.iter_raw()
            except httpx.TransportError:
                pass


def main():
    library, url, token, output = sys.argv[1:]
    tag, whole, digest, attempts = None, None, None, 0
    while whole is None or os.path.getsize(output) < whole:
        attempts += 1
        assert attempts <= 10, "it never ends"
        have = os.path.getsize(output) if tag else 0
        headers = {"Authorization": "Bearer " + token, "Accept-Encoding": "identity"}
        if have:
            headers |= {"Range": f"bytes={have}-", "If-Range": tag}
        answer = get(library, url, headers)
        status, fields = next(answer)
        assert status == (206 if have else 200), status
        assert tag in (None, fields["ETag"])
        tag, digest = fields["ETag"], fields["Repr-Digest"]
        if have:
            place, whole_text = fields["Content-Range"].removeprefix("bytes ").split("/")
            assert place == f"{have}-{int(whole_text) - 1}", place
            whole = int(whole_text)
        else:
            whole = int(fields["Content-Length"])
        with open(output, "ab" if have else "wb") as file:
            for block in answer:
                file.write(block)
    with open(output, "rb") as file:
        found = hashlib.sha256(file.read()).digest()
    assert digest == f"sha-256=:{base64.b64encode(found).decode()}:", digest
    print(attempts)


main()
