"""Keeps what is sent to it: keeper.py ADDRESS FOLDER. Each POST is a tar file of one folder, which is
there once all of it is."""
import http.server
import io
import os
import sys
import tarfile
import tempfile


class Keeper(http.server.BaseHTTPRequestHandler):
    folder = ""

    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        with tempfile.TemporaryDirectory(dir=self.folder) as place:
            with tarfile.open(fileobj=io.BytesIO(body)) as tar:
                tar.extractall(place)
            name, = os.listdir(place)
            os.rename(os.path.join(place, name), os.path.join(self.folder, name))
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_):
        pass


def main():
    host, port = sys.argv[1].rsplit(":", 1)
    Keeper.folder = sys.argv[2]
    os.makedirs(Keeper.folder, exist_ok=True)
    http.server.HTTPServer((host, int(port)), Keeper).serve_forever()


main()
