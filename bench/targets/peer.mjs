/** What both peers share: Fastify that verifies the signature and answers once `enqueue` has committed one job per event. */
import { createHmac, timingSafeEqual } from 'node:crypto'
import fastify from 'fastify'

export async function serve(enqueue) {
  const app = fastify()
  app.addContentTypeParser('application/json', { parseAs: 'buffer' }, (_request, body, done) =>
    done(null, body),
  )
  app.post('/api/line/:id', async (request, reply) => {
    const expected = createHmac('sha256', process.env.CHANNEL_SECRET).update(request.body).digest()
    const given = Buffer.from(request.headers['x-line-signature'] ?? '', 'base64')
    if (given.length !== expected.length || !timingSafeEqual(given, expected)) return reply.code(403).send()
    const { events } = JSON.parse(request.body.toString())
    await enqueue(events)
    return { accepted: events.length }
  })
  await app.listen({ port: Number(process.env.PORT), host: '127.0.0.1' })
}
