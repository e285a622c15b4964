"""Compares the four tables with what the pipeline has to make of the documents; says what differs.

Reads the tables as JSON from standard input: {"files": [row, ...], "file_items": ..., "collection_files": ...,
"file_workspaces": ...}. Usage: check.py DOCUMENTS_DIRECTORY < tables.json
"""

import collections
import json
import os
import pathlib
import sys
import uuid

from services import chunks, vector

USER, COLLECTION, WORKSPACE = (os.environ[name] for name in ("USER_ID", "COLLECTION_ID", "WORKSPACE_ID"))


def multiset(rows):
    # A number is the same with and without a fraction: a script writes 0.0 as 0.
    numbers = (json.loads(json.dumps(row), parse_int=float) for row in rows)
    return collections.Counter(json.dumps(row, sort_keys=True) for row in numbers)


def differences(table, found, expected):
    found, expected = multiset(found), multiset(expected)
    for row in (expected - found).elements():
        yield f"{table}: missing {row}"
    for row in (found - expected).elements():
        yield f"{table}: not expected {row}"


def main():
    tables = json.load(sys.stdin)
    documents = {f"papers/{path.stem}.pdf": path for path in sorted(pathlib.Path(sys.argv[1]).glob("*.txt"))}
    ids = {row["file_path"]: row["id"] for row in tables["files"]}
    wrong = [f"files: {path} has no row" for path in documents if path not in ids]
    wrong += [f"files: {id} is no random UUID" for id in ids.values() if uuid.UUID(id).version != 4]
    if len(set(ids.values())) != len(ids):
        wrong.append("files: two documents share an id")

    expected = {"files": [], "file_items": [], "collection_files": [], "file_workspaces": []}
    for key, path in documents.items():
        id = ids.get(key)
        expected["files"].append({
            "id": id, "user_id": USER, "description": f"About {path.stem}", "file_path": key,
            "name": key.split("/")[-1], "size": 0, "tokens": 0, "type": "application/pdf",
        })
        expected["collection_files"].append({"file_id": id, "collection_id": COLLECTION, "user_id": USER})
        expected["file_workspaces"].append({"file_id": id, "workspace_id": WORKSPACE, "user_id": USER})
        for text in chunks(path.read_bytes()):
            expected["file_items"].append({
                "file_id": id, "user_id": USER, "content": text, "local_embedding": vector(text),
                "tokens": len(text.split()),
            })
    for table, rows in expected.items():
        wrong += differences(table, tables[table], rows)
    print("\n".join(wrong) if wrong else "; ".join(f"{name}: {len(rows)} rows" for name, rows in tables.items()))
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
