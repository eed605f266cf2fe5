"""A program for the guest: a web server made of sockets, because the small template has little of Python's library.

What it answers is told by the first part of the path. It misbehaves on purpose where it is asked to.
"""

import base64
import hashlib
import socket
import sys
import threading

gate = threading.Event()
lock = threading.Lock()
hanging = 0


def count(change):
    global hanging
    with lock:
        hanging += change
        return hanging


def answer(connection, body, *headers, status="200 OK", head=False):
    lines = ["HTTP/1.1 " + status, "Content-Length: %d" % len(body), *headers, "", ""]
    connection.sendall("\r\n".join(lines).encode() + (b"" if head else body))


def chunk(data):
    return b"%x\r\n%s\r\n" % (len(data), data)


def exactly(stream, size):
    data = stream.read(size)
    if len(data) != size:
        raise EOFError
    return data


def pieces(stream, fields):
    if fields.get("transfer-encoding") == "chunked":
        while size := int(stream.readline(), 16):
            yield exactly(stream, size)
            stream.readline()
        return
    left = int(fields.get("content-length", 0))
    while left:
        piece = exactly(stream, min(left, 65536))
        left -= len(piece)
        yield piece


def echo_frames(connection, stream):
    while True:
        first, length = exactly(stream, 2)
        length &= 127
        if length == 126:
            length = int.from_bytes(exactly(stream, 2), "big")
        mask, data = exactly(stream, 4), exactly(stream, length)
        data = bytes(byte ^ mask[i % 4] for i, byte in enumerate(data))
        size = bytes([len(data)]) if len(data) < 126 else b"\x7e" + len(data).to_bytes(2, "big")
        connection.sendall(bytes([first]) + size + data)
        if first & 15 == 8:
            return


def serve(connection):
    stream = connection.makefile("rb")
    head = b""
    while not head.endswith(b"\r\n\r\n"):
        line = stream.readline()
        if not line:
            return
        head += line
    lines = head.decode().split("\r\n")
    method, path, _ = lines[0].split(" ")
    fields = {name.lower(): value for name, value in (line.split(": ", 1) for line in lines[1:] if line)}
    word = path.split("?")[0].split("/")[1]
    if word == "upload":
        digest, size = hashlib.sha256(), 0
        for piece in pieces(stream, fields):
            digest.update(piece)
            size += len(piece)
        answer(connection, b"%d %s" % (size, digest.hexdigest().encode()))
    elif word == "download":
        left = int(path.split("?")[1])
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % left)
        while left:
            piece = b"x" * min(left, 65536)
            connection.sendall(piece)
            left -= len(piece)
    elif word == "stream":
        connection.sendall(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + chunk(b"first"))
        gate.wait()
        connection.sendall(chunk(b"second") + b"0\r\n\r\n")
    elif word == "gate":
        gate.set()
        answer(connection, b"")
    elif word == "move":
        cookie = "Set-Cookie: a=b; Path=/; Domain=localhost"
        answer(connection, b"", "Location: /echo?moved", cookie, "Service-Worker-Allowed: /", status="302 Found")
    elif word == "old":
        connection.sendall(b"HTTP/1.0 200 OK\r\n\r\nuntil the end")
    elif word == "ws":
        key = fields["sec-websocket-key"] + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
        accept = base64.b64encode(hashlib.sha1(key.encode()).digest()).decode()
        lines = ["HTTP/1.1 101 Switching Protocols", "Upgrade: websocket", "Connection: Upgrade"]
        connection.sendall("\r\n".join([*lines, "Sec-WebSocket-Accept: " + accept, "", ""]).encode())
        echo_frames(connection, stream)
    elif word == "raw":
        connection.sendall(b"HTTP/1.1 101 Other\r\nUpgrade: shout\r\nConnection: upgrade\r\n\r\n")
        while line := stream.readline():
            connection.sendall(line.upper())
    elif word == "never":
        stream.read()
    elif word == "hang":
        count(1)
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nso ")
        stream.read()
        count(-1)
    elif word == "hanging":
        answer(connection, b"%d" % count(0))
    elif word == "garbage":
        connection.sendall(b"\x00\xffnothing\r\n\r\n")
    elif word == "endless":
        connection.sendall(b"HTTP/1.1 200 OK\r\n")
        while True:
            connection.sendall(b"X-More: and more and more and more\r\n" * 100)
    elif word == "short":
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\ntoo little")
    elif word == "silent":
        pass
    elif word == "unasked":
        connection.sendall(b"HTTP/1.1 101 Whatever\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n")
    else:
        answer(connection, head, "Content-Type: text/plain", head=method == "HEAD")


def attend(connection):
    try:
        serve(connection)
    except (OSError, EOFError):
        pass
    finally:
        try:
            connection.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass
        connection.close()


def listen(port):
    listener = socket.create_server(("127.0.0.1", port))
    while True:
        connection, _ = listener.accept()
        threading.Thread(target=attend, args=(connection,), daemon=True).start()


ports = [int(port) for port in sys.argv[1:]]
for port in ports[1:]:
    threading.Thread(target=listen, args=(port,), daemon=True).start()
listen(ports[0])
