// Uploads a file as the form field source: upload.mjs URL FILE length|chunked.
// Prints the answer's status and body.
import { openAsBlob, createReadStream } from 'node:fs';

const [url, file, framing] = process.argv.slice(2);
let request;
if (framing === 'length') {
  const form = new FormData();
  form.set('source', await openAsBlob(file), 'a.tar.gz');
  request = { method: 'POST', body: form };
} else {
  const body = async function* () {
    yield Buffer.from('--b\r\nContent-Disposition: form-data; name="source"; filename="a.tar.gz"\r\n\r\n');
    yield* createReadStream(file);
    yield Buffer.from('\r\n--b--\r\n');
  };
  request = {
    method: 'POST', body: ReadableStream.from(body()), duplex: 'half',
    headers: { 'Content-Type': 'multipart/form-data; boundary=b' },
  };
}
const answer = await fetch(url, request);
console.log(answer.status, await answer.text());
