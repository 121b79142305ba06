/** The schemas of members in the OpenAPI document, with examples. Route schemas refer to them by name. */
import { reference } from '../http/schema-parts.ts'
import { Type } from '../http/typebox.ts'
import { Nullable } from '../http/validate.ts'
import { CSV_HEADER, type Member, MemberSchema } from './member.ts'
import { MemberUpdateSchema } from './update.ts'

const MEMBER: Member = {
  id: '28163270815507',
  userId: 'U4af4980629f0d2d3a1a2a3a4a5a6a7a8',
  displayName: 'Ann',
  pictureUrl: null,
  language: 'th',
  relationship: 'following',
  followedAt: '2023-11-14T22:13:20.000Z',
  blockedAt: null,
  firstSeenAt: '2023-11-14T22:13:20.000Z',
  lastSeenAt: '2023-11-14T22:13:20.000Z',
  eventCount: 1,
  conversation: null,
  source: { source: 'qr-shop', medium: 'poster', campaign: 'autumn', at: '2023-11-14T22:12:50.000Z' },
  externalId: null,
  tags: ['vip'],
  attributes: { cups: 3 },
  version: 1,
  createdAt: '2026-11-20T22:05:17.448Z',
  updatedAt: '2026-11-20T22:05:17.448Z',
}
const ERASED = { id: '28163270815508', deletedAt: '2026-11-21T09:00:00.000Z' }

const ErasedMember = Type.Object(
  { id: Type.String(), deletedAt: Type.String({ format: 'date-time' }) },
  {
    description:
      'A member that was erased. Only pages and streams of a query with `updatedSince` contain these.',
    examples: [ERASED],
  },
)

const MemberOrErased = Type.Union([reference('Member'), reference('ErasedMember')])

const Page = Type.Object(
  {
    data: Type.Array(MemberOrErased),
    nextCursor: Nullable(
      Type.String({ description: 'Send it as `cursor` to get the next page. It is null on the last page.' }),
    ),
  },
  { examples: [{ data: [MEMBER], nextCursor: null }] },
)

const MemberLines = Type.String({
  description: 'One member per line, as JSON. Each line matches `contentSchema`, and ends with a line feed.',
  contentMediaType: 'application/x-ndjson',
  contentSchema: MemberOrErased,
  examples: [`${JSON.stringify(MEMBER)}\n${JSON.stringify(ERASED)}\n`],
})

const MemberTable = Type.String({
  description: `RFC 4180 in UTF-8. The first line has the names of the columns. Null is an empty cell, and \`tags\` and \`attributes\` are JSON.
Text that a spreadsheet would evaluate as a formula begins with an apostrophe. An erased member has only \`id\` and \`deletedAt\`.`,
  contentMediaType: 'text/csv',
  examples: [
    `${CSV_HEADER}\r\n28163270815507,"U4af4980629f0d2d3a1a2a3a4a5a6a7a8","Ann",,"th",following,2023-11-14T22:13:20.000Z,,` +
      `2023-11-14T22:13:20.000Z,2023-11-14T22:13:20.000Z,1,,,,,"[""vip""]","{""cups"": 3}",1,2026-11-20T22:05:17.448Z,` +
      '2026-11-20T22:05:17.448Z,\r\n',
  ],
})

export const memberSchemas = {
  Member: { ...MemberSchema, examples: [MEMBER] },
  ErasedMember,
  Page,
  MemberLines,
  MemberTable,
  MemberUpdate: {
    ...MemberUpdateSchema,
    description: 'A field that is left out keeps its value. A field that is null is cleared.',
    examples: [{ externalId: 'customer-1', tags: ['vip'], attributes: { cups: 3 } }],
  },
}
