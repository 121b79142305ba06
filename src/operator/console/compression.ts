/** Compresses large responses. The fleet of 1,000 accounts is 1.2 MB of JSON, and 0.1 MB compressed. */
import { promisify } from 'node:util'
import { constants, gzip } from 'node:zlib'
import type { FastifyInstance } from 'fastify'

const gzipped = promisify(gzip)

/** Smaller responses fit into a few packets. */
const LARGE = 16 * 1024

export function compressLargeResponses(app: FastifyInstance): void {
  app.addHook('onSend', async (request, reply, payload) => {
    if (typeof payload !== 'string' || payload.length < LARGE) return payload
    if (!/\bgzip\b/.test(String(request.headers['accept-encoding']))) return payload
    const compressed = await gzipped(payload, { level: constants.Z_BEST_SPEED })
    reply.headers({
      'content-encoding': 'gzip',
      'content-length': compressed.length,
      vary: 'accept-encoding',
    })
    return compressed
  })
}
