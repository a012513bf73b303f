"""Uploads a file as the form field source: upload.py http.client|urllib URL FILE length|chunked.

Prints the answer's status and body.
"""
import http.client
import os
import sys
import urllib.error
import urllib.parse
import urllib.request

client, url, path, framing = sys.argv[1:]
head = (b'--b\r\nContent-Disposition: form-data; name="source"; filename="a.tar.gz"\r\n'
        b'Content-Type: application/octet-stream\r\n\r\n')
tail = b'\r\n--b--\r\n'


def body():
    yield head
    with open(path, 'rb') as f:
        while block := f.read(64 << 10):
            yield block
    yield tail


headers = {'Content-Type': 'multipart/form-data; boundary=b'}
if framing == 'length':
    headers['Content-Length'] = str(len(head) + os.path.getsize(path) + len(tail))

if client == 'http.client':
    at = urllib.parse.urlsplit(url)
    connection = http.client.HTTPConnection(at.hostname, at.port)
    connection.request('POST', at.path, body=body(), headers=headers, encode_chunked=framing == 'chunked')
    answer = connection.getresponse()
else:
    try:
        answer = urllib.request.urlopen(urllib.request.Request(url, data=body(), headers=headers, method='POST'))
    except urllib.error.HTTPError as refusal:
        answer = refusal
print(answer.status, answer.read().decode())
