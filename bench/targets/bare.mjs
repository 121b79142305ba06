/** The minimum that a webhook does: node:http, signature, JSON.parse, 200. It stores nothing. */
import { createHmac, timingSafeEqual } from 'node:crypto'
import { createServer } from 'node:http'

const secret = process.env.CHANNEL_SECRET

createServer((request, response) => {
  const chunks = []
  request.on('data', (chunk) => chunks.push(chunk))
  request.on('end', () => {
    const body = Buffer.concat(chunks)
    const expected = createHmac('sha256', secret).update(body).digest()
    const given = Buffer.from(request.headers['x-line-signature'] ?? '', 'base64')
    const ok = given.length === expected.length && timingSafeEqual(given, expected)
    const { events } = ok ? JSON.parse(body.toString()) : { events: [] }
    const answer = JSON.stringify({ accepted: events.length, duplicates: 0 })
    response.writeHead(ok ? 200 : 403, {
      'content-type': 'application/json',
      'content-length': answer.length,
    })
    response.end(answer)
  })
}).listen(Number(process.env.PORT), '127.0.0.1')
