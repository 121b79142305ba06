/** The audiences of the simulated platform: LINE's Manage Audience API, as far as this service calls it. */
import type { IncomingMessage } from 'node:http'
import { buffer } from 'node:stream/consumers'
import type { PlatformState } from './state.ts'

const PATH = '/v2/bot/audienceGroup'
const NAME_MAX_LENGTH = 120
const AUDIENCES_MAX = 1_000
const PAGE_SIZE = 20

export interface SimulatedAudience {
  audienceGroupId: number
  description: string
  userIds: string[]
  status: 'IN_PROGRESS' | 'READY' | 'FAILED' | 'EXPIRED'
  /** An upload takes effect at this time, and READY follows. */
  atMs: number
}

export interface AudienceSettings {
  /** milliseconds until a file is READY; LINE needs up to hours */
  readyAfterMs: number
  /** milliseconds between the response to an upload and the audience */
  visibleAfterMs: number
  /** not offered to the account, as outside of Japan, Thailand and Taiwan */
  isRefused: boolean
  /** the next files end as FAILED */
  isFailing: boolean
  /** the connection is cut before or after a call takes effect, or a proxy refuses the call as if its audience did not exist */
  cut: (call: string) => 'before' | 'after' | 'refused' | null
  /** of the newest audience; ids are not used again */
  lastId: number
}

interface Reply {
  status: number
  body: unknown
}

const refuse = (status: number, message: string): Reply => ({ status, body: { message } })
const GONE = refuse(400, 'AUDIENCE_GROUP_NOT_FOUND')

/** Null: the call is not about audiences. Rejects if the connection is cut. */
export async function answerAudience(
  state: PlatformState,
  request: IncomingMessage,
  url: URL,
): Promise<Reply | null> {
  if (!url.pathname.startsWith(`${PATH}/`)) return null
  const { isRefused, cut } = state.audienceSettings
  if (isRefused) return refuse(403, 'Access to this API is not available for your account')
  const call = `${request.method} ${url.pathname.slice(PATH.length)}`
  const when = cut(call)
  if (when === 'refused') return refuse(404, 'no Route matched with those values')
  const reply = when === 'before' ? null : await answerCall(state, request, call, url.searchParams)
  if (when !== null) throw new Error('the connection is cut')
  return reply
}

async function answerCall(
  { audiences, audienceSettings: settings }: PlatformState,
  request: IncomingMessage,
  call: string,
  query: URLSearchParams,
): Promise<Reply> {
  if (call === 'POST /upload/byFile') return upload(audiences, settings, request)
  const visible = [...audiences.values()].filter(({ atMs }) => atMs <= Date.now())
  for (const audience of visible) finish(audience, settings)
  if (call === 'GET /list') return list(visible, query)
  const [, method, id] = /^(GET|DELETE) \/(\d+)$/.exec(call) ?? []
  const audience = visible.find(({ audienceGroupId }) => audienceGroupId === Number(id))
  if (audience === undefined) return GONE
  if (method === 'GET') return { status: 200, body: { audienceGroup: shown(audience), jobs: [] } }
  audiences.delete(audience.audienceGroupId)
  // LINE responds without a body.
  return { status: 202, body: undefined }
}

/** An empty audience stays IN_PROGRESS for ever. */
function finish(audience: SimulatedAudience, { readyAfterMs, isFailing }: AudienceSettings): void {
  if (audience.status !== 'IN_PROGRESS' || audience.userIds.length === 0) return
  if (audience.atMs + readyAfterMs <= Date.now()) audience.status = isFailing ? 'FAILED' : 'READY'
}

const shown = ({ userIds, atMs, ...audience }: SimulatedAudience) => ({
  ...audience,
  ...{ type: 'UPLOAD', createRoute: 'MESSAGING_API', permission: 'READ_WRITE' },
  audienceCount: userIds.length,
  created: Math.floor(atMs / 1000),
})

async function upload(
  audiences: PlatformState['audiences'],
  settings: AudienceSettings,
  request: IncomingMessage,
): Promise<Reply> {
  const headers = { 'content-type': request.headers['content-type'] ?? '' }
  const form = await new Response(await buffer(request), { headers }).formData()
  const [description, file] = [form.get('description'), form.get('file')]
  if (typeof description !== 'string' || !(file instanceof Blob) || !file.type.startsWith('text/plain'))
    return refuse(400, 'Invalid request')
  if ([...description].length > NAME_MAX_LENGTH || /\p{Cc}/u.test(description))
    return refuse(400, 'INVALID_AUDIENCE_GROUP_NAME')
  if (audiences.size >= AUDIENCES_MAX) return refuse(400, 'AUDIENCE_GROUP_COUNT_MAX_OVER')
  const userIds = (await file.text()).split('\n').filter((line) => line !== '')
  if (!userIds.every((id) => /^U[0-9a-f]{32}$/.test(id)))
    return refuse(400, 'UPLOAD_AUDIENCE_GROUP_INVALID_AUDIENCE_ID_FORMAT')
  settings.lastId += 1
  const audienceGroupId = settings.lastId
  const atMs = Date.now() + settings.visibleAfterMs
  const audience: SimulatedAudience = { audienceGroupId, description, userIds, status: 'IN_PROGRESS', atMs }
  audiences.set(audienceGroupId, audience)
  return { status: 202, body: shown(audience) }
}

/** Newest first. The name is a part, without case. */
function list(visible: SimulatedAudience[], query: URLSearchParams): Reply {
  const part = (query.get('description') ?? '').toLowerCase()
  const [page, size] = [Number(query.get('page') ?? 1), Number(query.get('size') ?? PAGE_SIZE)]
  const found = visible.filter(({ description }) => description.toLowerCase().includes(part)).toReversed()
  const audienceGroups = found.slice((page - 1) * size, page * size).map(shown)
  return {
    status: 200,
    body: { audienceGroups, hasNextPage: page * size < found.length, totalCount: found.length, page, size },
  }
}
