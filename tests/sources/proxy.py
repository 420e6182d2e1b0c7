"""A proxy between client and server on loopback that can slow down, stall and cut connections."""

from __future__ import annotations

import socket
import threading
from contextlib import suppress
from typing import Literal


class Proxy:
    """Forwards connections to a port that may change. The bytes sent by the server can be rationed."""

    def __init__(self, target: int) -> None:
        self.target = target
        self.connections = 0
        self.ration_used = threading.Event()
        self._changed = threading.Condition()
        self._left: float = float("inf")  # bytes that may still be forwarded from server to client
        self._then: Literal["stall", "cut"] = "stall"
        self._pause_s = 0.0
        self._open: list[socket.socket] = []
        self._closed = False
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def stall_after(self, nbytes: int) -> None:
        """Forward this many more bytes, then nothing until `go_on`."""
        self._ration(nbytes, "stall")

    def cut_after(self, nbytes: int) -> None:
        """Forward this many more bytes, then break all connections, once."""
        self._ration(nbytes, "cut")

    def slow_down(self, pause_s: float) -> None:
        """Pause after each 64 KB."""
        self._pause_s = pause_s

    def go_on(self) -> None:
        self._ration(float("inf"), "stall")

    def cut(self) -> None:
        with self._changed:
            for line in self._open:
                with suppress(OSError):
                    line.shutdown(socket.SHUT_RDWR)  # wakes its reading thread, which closes it
            self._open.clear()
            self._changed.notify_all()

    def close(self) -> None:
        self._closed = True
        self._listener.shutdown(socket.SHUT_RDWR)  # wakes the accepting thread
        self._listener.close()
        self.go_on()
        self.cut()

    def _ration(self, nbytes: float, then: Literal["stall", "cut"]) -> None:
        with self._changed:
            self._left, self._then = nbytes, then
            self.ration_used.clear()
            self._changed.notify_all()

    def _accept(self) -> None:
        while not self._closed:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            try:
                server = socket.create_connection(("127.0.0.1", self.target))
            except OSError:
                client.close()  # as if no server were listening
                continue
            self.connections += 1
            with self._changed:
                self._open += [client, server]
            threading.Thread(target=self._pump, args=(client, server, False), daemon=True).start()
            threading.Thread(target=self._pump, args=(server, client, True), daemon=True).start()

    def _pump(self, source: socket.socket, sink: socket.socket, rationed: bool) -> None:
        try:
            while data := source.recv(1 << 16):
                if rationed:
                    self._pass(len(data), source)
                sink.sendall(data)
        except OSError:
            pass  # broken by either end, or cut here
        for line in (source, sink):
            with suppress(OSError):
                line.shutdown(socket.SHUT_RDWR)

    def _pass(self, nbytes: int, source: socket.socket) -> None:
        with self._changed:
            self._left -= nbytes
            while self._left < 0:
                self.ration_used.set()
                if self._then == "cut":
                    self._left = float("inf")
                    self.cut()
                self._changed.wait()
                if source not in self._open:
                    return
            if self._pause_s:
                self._changed.wait(self._pause_s)
