/** Samples of every event kind and message type that LINE documents. */
import { randomBytes } from 'node:crypto'
import { lineEvent, messageId, randomUserId } from './events.ts'

const hex = (bytes: number) => randomBytes(bytes).toString('hex')
const randomGroupId = () => `C${hex(16)}`
const randomRoomId = () => `R${hex(16)}`

const replyToken = () => hex(16)
const quoteToken = () => randomBytes(48).toString('base64url')
const fromLine = { contentProvider: { type: 'line' } }

/** Message type → its fields besides `id` and `type`. */
export const MESSAGES: Record<string, () => Record<string, unknown>> = {
  text: () => ({ text: 'hello 🤨', quoteToken: quoteToken() }),
  image: () => ({ ...fromLine, quoteToken: quoteToken(), imageSet: { id: hex(20), index: 1, total: 2 } }),
  video: () => ({ ...fromLine, duration: 60_000, quoteToken: quoteToken() }),
  audio: () => ({ ...fromLine, duration: 60_000 }),
  file: () => ({ fileName: 'price list.pdf', fileSize: 2138 }),
  location: () => ({ title: 'office', address: '1-3 Kioicho', latitude: 35.67966, longitude: 139.73669 }),
  sticker: () => ({
    packageId: '446',
    stickerId: '1988',
    stickerResourceType: 'ANIMATION',
    keywords: ['Sad', 'Cry'],
    quoteToken: quoteToken(),
  }),
}

export function messageOf(type: string): Record<string, unknown> {
  return { id: messageId(), type, ...MESSAGES[type]?.() }
}

interface Kind {
  /** the fields that only this kind has */
  fields: () => Record<string, unknown>
  /** `anywhere`: a user, a group or a room; `nowhere`: the event has no source */
  from: 'anywhere' | 'user' | 'group' | 'nowhere'
}

const withReplyToken = (fields: Record<string, unknown>) => ({ replyToken: replyToken(), ...fields })

export const KINDS: Record<string, Kind> = {
  message: { from: 'anywhere', fields: () => withReplyToken({ message: messageOf('text') }) },
  messageEdited: { from: 'group', fields: () => withReplyToken({ message: messageOf('text') }) },
  unsend: { from: 'anywhere', fields: () => ({ unsend: { messageId: messageId() } }) },
  follow: { from: 'user', fields: () => withReplyToken({ follow: { isUnblocked: false } }) },
  unfollow: { from: 'user', fields: () => ({}) },
  join: { from: 'group', fields: () => withReplyToken({}) },
  leave: { from: 'group', fields: () => ({}) },
  memberJoined: {
    from: 'group',
    fields: () => withReplyToken({ joined: { members: [randomUser(), randomUser()] } }),
  },
  memberLeft: { from: 'group', fields: () => ({ left: { members: [randomUser()] } }) },
  postback: {
    from: 'anywhere',
    fields: () =>
      withReplyToken({ postback: { data: 'storeId=12345', params: { datetime: '2026-12-25T01:00' } } }),
  },
  videoPlayComplete: {
    from: 'user',
    fields: () => withReplyToken({ videoPlayComplete: { trackingId: 'spring-film' } }),
  },
  beacon: {
    from: 'user',
    fields: () => withReplyToken({ beacon: { hwid: 'd41d8cd98f', type: 'enter', dm: '1234' } }),
  },
  accountLink: {
    from: 'user',
    fields: () => withReplyToken({ link: { result: 'ok', nonce: randomBytes(16).toString('base64') } }),
  },
  membership: {
    from: 'user',
    fields: () => withReplyToken({ membership: { type: 'joined', membershipId: 3189 } }),
  },
  module: {
    from: 'nowhere',
    fields: () => ({ module: { type: 'attached', botId: randomUserId(), scopes: ['message:send'] } }),
  },
  activated: { from: 'user', fields: () => ({ chatControl: { expireAt: Date.now() + 3_600_000 } }) },
  deactivated: { from: 'user', fields: () => ({}) },
  botSuspended: { from: 'nowhere', fields: () => ({}) },
  botResumed: { from: 'nowhere', fields: () => ({}) },
  delivery: { from: 'nowhere', fields: () => ({ delivery: { data: hex(32) } }) },
}

function randomUser() {
  return { type: 'user', userId: randomUserId() }
}

/** A sample event of a kind. Kinds without a source ignore `userId`. */
export function eventOf(kind: string, userId: string, sourceType?: 'user' | 'group' | 'room') {
  const { from, fields } = KINDS[kind] as Kind
  const type = sourceType ?? (from === 'group' ? 'group' : 'user')
  const source = {
    user: { type, userId },
    group: { type, groupId: randomGroupId(), userId },
    room: { type, roomId: randomRoomId(), userId },
  }[type]
  return lineEvent(kind, null, { ...(from === 'nowhere' ? {} : { source }), ...fields() })
}
