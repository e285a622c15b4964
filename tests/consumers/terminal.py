"""Runs a command on a terminal and answers its question: QUESTION ANSWER COMMAND...

Waits until the terminal shows QUESTION (empty: does not wait), types ANSWER and Return, prints everything that was
shown, and ends as the command does.
"""

import os
import pty
import select
import sys
import time

PATIENCE = 180


def main(question: str, answer: str, *command: str) -> int:
    child, terminal = pty.fork()
    if child == 0:
        os.execvp(command[0], command)
    shown = b""
    waits = bool(question)
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        ready, _, _ = select.select([terminal], [], [], 1)
        if not ready:
            continue
        try:
            read = os.read(terminal, 4096)
        except OSError:
            # What a terminal says when the last program on it is gone.
            read = b""
        if not read:
            break
        shown += read
        if waits and question.encode() in shown:
            os.write(terminal, answer.encode() + b"\n")
            waits = False
    else:
        os.kill(child, 9)
    sys.stdout.write(shown.decode(errors="replace").replace("\r\n", "\n"))
    if waits:
        sys.stdout.write(f"\nthe question was not asked: {question}\n")
        return 99
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


sys.exit(main(*sys.argv[1:]))
