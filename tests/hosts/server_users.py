"""Users of examples/hosts/server: server_users.py SERVER MODEL PROMPT=FILE... (each file has the text and a newline).
Prints "ok NAME" or "FAIL NAME: why" for each case, and "end"."""
import socket
import subprocess
import sys
import threading

WANTED = {}
for argument in sys.argv[3:]:
    prompt, _, path = argument.partition("=")
    with open(path, "rb") as file:
        WANTED[prompt] = file.read()[:-1]

server = subprocess.Popen([sys.argv[1], sys.argv[2], "0"], stdout=subprocess.PIPE)
port = int(server.stdout.readline().split()[1])


def connect():
    return socket.create_connection(("127.0.0.1", port), timeout=120)


def ask(line, enough=None, says_no_more=False):
    """What the server writes, or its first `enough` bytes: then the user hangs up."""
    text = b""
    with connect() as user:
        user.sendall(line.encode() + b"\n")
        if says_no_more:
            user.shutdown(socket.SHUT_WR)
        while enough is None or len(text) < enough:
            part = user.recv(4096)
            if not part:
                break
            text += part
    return text


def case(name, wrong):
    print(f"FAIL {name}: {wrong}" if wrong else f"ok {name}", flush=True)


def together(users):
    """Asks for all (PROMPT, ENOUGH) at once; returns what is wrong."""
    wrong = []

    def one(prompt, enough):
        try:
            text = ask(prompt, enough)
        except OSError as error:
            text = str(error).encode()
        if text != WANTED[prompt] and (enough is None or not WANTED[prompt].startswith(text)):
            wrong.append(f"'{prompt}' got {text[:200]}")

    threads = [threading.Thread(target=one, args=user) for user in users]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return wrong[:1]


try:
    prompts = list(WANTED)
    case("server-one", together([(prompts[0], None)]))
    case("server-many", together([(p, None) for p in 8 * prompts]))       # more than it has seats
    text = ask(prompts[0], says_no_more=True)
    case("server-half-closed", "" if text == WANTED[prompts[0]] else f"it got {text[:200]}")
    case("server-others-stay", together([(p, None if i % 2 else 1) for i, p in enumerate(4 * prompts)]))
    silent = [connect() for _ in range(7)]        # of 8 seats; they say nothing, half a line, or go
    silent[0].sendall(b"half a li")
    case("server-silent", together([(p, None) for p in prompts]))
    for user in silent:
        user.close()
    case("server-seats", together([(p, None) for p in 3 * prompts]))
    with connect() as user:                       # a line that does not end
        user.sendall(5000 * b"x")
        try:
            case("server-long-line", user.recv(100))
        except ConnectionError:
            case("server-long-line", "")
    ask("stop")
    case("server-stop", server.wait(60))
finally:
    server.kill()
print("end")
