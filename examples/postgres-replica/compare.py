"""Compares the tables of a source with those of its copy, again and again, while the load changes the source.

For each comparison, the load is stopped for a moment by a lock that its transactions share, until the copy is the same.
Exits with 1 if it is not within PATIENCE seconds (30 by default), and prints the first rows that differ.
Usage: compare.py SOURCE_URL COPY_URL [COUNT]; without COUNT it compares until Ctrl+C.
"""

import collections
import os
import subprocess
import sys
import time

TABLES = ("customers", "orders", "order_lines", "visits")
END = "end of the rows"


class Session:
    """A session of psql."""

    def __init__(self, url):
        command = ["psql", "-XqAt", "-v", "ON_ERROR_STOP=1", "-d", url]
        self.psql = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def rows(self, sql):
        try:
            self.psql.stdin.write(f"{sql};\n\\echo {END}\n")
            self.psql.stdin.flush()
        except BrokenPipeError:
            sys.exit("a database does not answer")
        rows = []
        for line in self.psql.stdout:
            if line.rstrip("\n") == END:
                return rows
            rows.append(line.rstrip("\n"))
        sys.exit("a database does not answer")

    def tables(self):
        """Number of rows and digest of each table; none of a table that does not exist yet."""
        there = self.rows("select relname from pg_class where relnamespace = 'public'::regnamespace and relkind = 'r'")
        digest = "select '{0}', count(*), md5(coalesce(string_agg(row, '' order by row), '')) from " \
            "(select md5(to_jsonb(t)::text) collate \"C\" as row from {0} t) rows"
        parts = [digest.format(table) for table in TABLES if table in there]
        return dict(row.split("|", 1) for row in self.rows(" union all ".join(parts))) if parts else {}


def differences(source, copy, table):
    """Yields the first rows that one of them has more often than the other."""
    sql = f"select to_jsonb(t) from {table} t"
    expected = collections.Counter(source.rows(sql))
    found = collections.Counter(copy.rows(sql) if table in copy.tables() else [])
    for row in sorted(expected - found)[:5]:
        yield f"{table}: missing {row[:200]}"
    for row in sorted(found - expected)[:5]:
        yield f"{table}: not expected {row[:200]}"
    yield f"{table}: {sum(expected.values())} rows at the source, {sum(found.values())} in the copy"


def compare(source, copy, patience):
    source.rows("select pg_advisory_lock(1)")
    start = time.monotonic()
    expected = source.tables()
    while (found := copy.tables()) != expected:
        if time.monotonic() - start > patience:
            wrong = [table for table in TABLES if found.get(table) != expected[table]]
            sys.exit("\n".join(line for table in wrong for line in differences(source, copy, table)))
        time.sleep(0.02)
    took = time.monotonic() - start
    source.rows("select pg_advisory_unlock(1)")
    counts = ", ".join(f"{table} {row.split('|')[0]}" for table, row in expected.items())
    print(f"the same after {took:.2f} s: {counts}", flush=True)


def main():
    source, copy = (Session(url) for url in sys.argv[1:3])
    count = int(sys.argv[3]) if len(sys.argv) > 3 else None
    patience = float(os.environ.get("PATIENCE", "30"))
    compared = 0
    while True:
        compare(source, copy, patience)
        compared += 1
        if compared == count:
            return
        time.sleep(1)


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit(130)
