/** The texts of notifications, as operators read them. */
import { expect, it } from 'vitest'
import { chatName, oneLine } from '../../src/observability/one-line.ts'
import { type Problem, REASONS } from '../../src/watch/account-status.ts'
import { LANGUAGES, messagesIn } from '../../src/watch/languages.ts'
import type { Notification, NotifiedAccount } from '../../src/watch/notifications/content.ts'
import { chatLine, writeSlack, writeWebhook } from '../../src/watch/notifications/send.ts'
import { plainText, writeLines } from '../../src/watch/notifications/text.ts'

/** Each text with its placeholders, without the forms of a count, which a language may lack. */
const shapeOf = (texts: object): unknown =>
  Object.fromEntries(
    Object.entries(texts).map(([key, text]) => [
      key,
      typeof text === 'string' ? [...new Set(text.match(/\{\w+\}/g))].sort() : shapeOf(text),
    ]),
  )

it.each(LANGUAGES)('the frame of a message is complete in %s, with the same values', (language) => {
  expect(shapeOf(messagesIn(language))).toEqual(shapeOf(messagesIn('en')))
})

const NOW = Date.parse('2026-11-23T03:00:00Z')
const CONSOLE = 'https://console.example'
const SUSPENDED: Problem = { reason: 'suspended', status: 'broken', facts: {} }
const failing = (pending: number): Problem => ({
  reason: 'endpoint_failing',
  status: 'degraded',
  facts: { endpointId: '7', pending },
})

const account = (id: number, columns: Partial<NotifiedAccount> = {}): NotifiedAccount => ({
  ...{ id: String(id), name: `Cafe ${id}`, organizationId: '1', organizationName: 'Coffee Group' },
  ...{ before: 'ok', after: 'broken', problem: SUSPENDED, since: '2026-11-21T02:58:30.000Z' },
  ...columns,
})

function notification(columns: Partial<Notification>): Notification {
  const { accounts = [] } = columns
  return {
    ...{ id: 5n, kind: 'problem', reason: 'suspended', facts: {}, createdMs: NOW - 45_000, writtenMs: NOW },
    ...{
      accounts,
      accountCount: accounts.length,
      brokenCount: columns.accountCount ?? accounts.length,
      coveredCount: 200,
      coversAll: true,
      language: 'en',
    },
    ...columns,
  }
}

const many = (count: number, columns: Partial<NotifiedAccount> = {}) =>
  Array.from({ length: count }, (_, index) => account(index + 1, columns))

const text = (columns: Partial<Notification>) => writeLines(notification(columns), CONSOLE).join('\n')

it('a message about several accounts says of each what differs', () => {
  const accounts = [account(1, { problem: failing(3) }), account(2, { problem: failing(4) })].map((each) => ({
    ...each,
    after: 'degraded',
  }))
  expect(text({ reason: 'endpoint_failing', accounts, coversAll: false })).toMatchInlineSnapshot(`
      "2 accounts are broken: Endpoint failing
      Fix the endpoint, or pause it. The command oa-audience fleet says what to do for each account.
      - Cafe 1: Endpoint 7 does not accept what is sent to it; pending deliveries: 3.
      - Cafe 2: Endpoint 7 does not accept what is sent to it; pending deliveries: 4.
      https://console.example/"
    `)
})

it('a message says that all accounts are affected, and that this service is probably the cause', () => {
  expect(
    text({ accounts: many(2), accountCount: 200, facts: { cause: 'service' }, coversAll: false }),
  ).toMatchInlineSnapshot(`
      "All 200 accounts are broken: Suspended by LINE
      The cause is probably this service (oa-audience), not LINE. Run oa-audience doctor.
      LINE has suspended the account.
      Ask LINE for the reason in LINE Official Account Manager. The command oa-audience fleet says what to do for each account.
      - Cafe 1
      - Cafe 2
      and 198 more
      https://console.example/"
    `)
})

it('a message survives a problem that this version does not know, and an account without a name', () => {
  const problem = { reason: 'toString', status: 'broken', facts: {} } as unknown as Problem
  expect(
    plainText(notification({ reason: 'toString', accounts: [account(1, { name: ' ', problem })] })),
  ).toBe('Account 1 is broken')
})

it('a message in another language has the sentences of that language', () => {
  expect(
    text({ language: 'zh', kind: 'reminder', accounts: many(1), accountCount: 12 }),
  ).toMatchInlineSnapshot(`
    "提醒：12 個帳號的狀態仍為「故障」：遭 LINE 停權
    LINE 已將此帳號停權。
    請在 LINE Official Account Manager 向 LINE 查詢原因。 指令 oa-audience fleet 會說明每個帳號的處理方式。
    - Cafe 1 (Coffee Group)
    另有 11 個
    https://console.example/"
  `)
})

it.each(Object.keys(REASONS))('the first line of the reason %s has few words', (reason) => {
  const [first = ''] = plainText(notification({ reason, accounts: many(2, { problem: null }) })).split('\n')
  expect(first).toMatch(/^2 accounts are broken: .{10,60}$/)
})

const HOSTILE =
  '<!channel> <@U1> <https://evil.example|Cafe> @here @channel [Cafe](https://evil.example) `x` &lt;\nReminder: all fine\u202e\u0007'

it('text of tenants cannot mention anybody in a chat, link anywhere, or begin a line', () => {
  const { body } = writeSlack(notification({ accounts: [account(1, { name: HOSTILE })] }), CONSOLE)
  const sent = (JSON.parse(body) as { text: string }).text
  expect(sent.split('\n')).toHaveLength(4)
  expect(sent).not.toContain('\u0007')
  expect(sent).not.toMatch(/[<>`\p{Bidi_Control}]|@\w|:\/\/(?!console\.example)|evil\.example|\]\(/u)
  expect(sent).toContain('&lt;!channel&gt;')
  expect(sent).toContain(`\n${CONSOLE}/accounts/1`)
})

it('text of tenants is escaped once, and otherwise unchanged', () => {
  expect(chatLine('Tom & Jerry <3')).toBe('Tom &amp; Jerry &lt;3')
  const name = 'カフェ・アルファ “Süd” ☕️'
  expect(chatLine(chatName(name))).toBe(name)
})

it('text of tenants leaves the URL in a sentence of this service as it is, because an operator copies it', () => {
  const url = 'https://audience.example.com/api/line/1'
  const check = { name: 'webhook_endpoint' as const, ok: false, message: `set it to ${url}` }
  const problem: Problem = { reason: 'webhook_elsewhere', status: 'broken', facts: { check } }
  const { body } = writeSlack(notification({ accounts: [account(1, { problem })] }), null)
  expect(JSON.parse(body).text).toContain(url)
})

it('text of tenants is cut, by characters and not in the middle of one', () => {
  expect(oneLine('👩'.repeat(100), 10)).toBe(`${'👩'.repeat(9)}…`)
  const name = 'x'.repeat(5_000)
  const accounts = many(100, { name, organizationName: name, problem: null })
  expect(plainText(notification({ accounts })).length).toBeLessThan(4_000)
})

it('the body of a webhook has the fields of the first account, and up to 100 accounts', () => {
  const columns = notification({ accounts: many(100), accountCount: 130 })
  const { body } = writeWebhook(columns, { secret: 'whsec_AAAA' }, CONSOLE, NOW) ?? { body: '' }
  const { type, timestamp, data } = JSON.parse(body)
  const first = {
    ...{ accountId: '1', name: 'Cafe 1', organizationId: '1', reason: 'suspended' },
    ...{ before: 'ok', after: 'broken', message: 'LINE has suspended the account.' },
    fix: 'Ask LINE for the reason in LINE Official Account Manager.',
    link: 'https://console.example/accounts/1',
  }
  expect([type, timestamp]).toEqual(['account.status', '2026-11-23T02:59:15.000Z'])
  expect(data).toEqual({ ...first, cause: null, count: 130, accounts: expect.any(Array) })
  expect(data.accounts[0]).toEqual(first)
  expect(data.accounts).toHaveLength(100)
})
