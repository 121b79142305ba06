/** The languages of the console: each table is complete, and nothing in it is English by mistake. */
import { readdirSync, readFileSync } from 'node:fs'
import { describe, expect, it } from 'vitest'
import type { Check, FailureReason } from '../../src/accounts/verification.ts'
import { ERRORS } from '../../src/errors.ts'
import { publicUrlFault } from '../../src/jobs/onboard.ts'
import { ACTIONS } from '../../src/operators/activity.ts'
import { type Problem, REASONS, type Reason } from '../../src/watch/account-status.ts'
import { describeCheck, describeProblem, fill } from '../../src/watch/problem-texts.ts'
import {
  english,
  LANGUAGE_NAMES,
  type Language,
  languageOf,
  loadLanguage,
  localize,
} from '../../web/texts/languages.ts'
import {
  describeEffect,
  describeFailure,
  describeFieldMessage,
  describeMessage,
} from '../../web/texts/service.ts'

const LANGUAGES = Object.keys(LANGUAGE_NAMES) as Language[]
const OTHERS = LANGUAGES.filter((language) => language !== 'en')

/** Every text of a table with its path. */
function leavesOf(value: object, path = ''): Map<string, string> {
  return new Map(
    Object.entries(value).flatMap(([key, inner]) =>
      typeof inner === 'string' ? [[`${path}/${key}`, inner]] : [...leavesOf(inner, `${path}/${key}`)],
    ),
  )
}

const valuesIn = (template: string) => [
  ...new Set([...template.matchAll(/\{(\w+)/g)].map(([, name]) => name)),
]

const checkOf = (reason: FailureReason): Check => ({
  ...{ name: 'access_token', ok: false, message: 'English', reason, status: 403 },
  platformMessage: 'Not available',
})

const AT = '2026-01-02T03:04:05Z'
const FACTS: { [R in Reason]: Extract<Problem, { reason: R }>['facts'] } = {
  no_channel_secret: {},
  suspended: {},
  token_refused: { check: checkOf('token_refused') },
  other_account: {},
  webhook_elsewhere: { check: checkOf('no_webhook_url') },
  webhook_inactive: {},
  webhook_test_failed: { check: checkOf('test_signature_refused') },
  line_signature_refused: { count: 1234, lastAt: AT },
  foreign_destination: { lastAt: AT },
  module_detached: { detachedAt: AT },
  answered_elsewhere: { testedAt: AT },
  chat_signature_refused: { count: 1234, lastAt: AT },
  line_signature_doubtful: { count: 1234, lastAt: AT },
  redelivery_off: { refusedAt: AT },
  duplicate_bot: { otherId: '77' },
  deliveries_missing: { count: 1234, day: '2026-01-02' },
  deliveries_failed: { count: 1234 },
  events_unapplied: { count: 1234 },
  endpoint_failing: { endpointId: '77', pending: 1234 },
  endpoint_failed: { count: 1234 },
  token_expires: { expiresAt: AT, isExpired: false },
  quota_used_up: { limit: 1234 },
  not_verifiable: { hasChannelId: false, hasChannelSecret: false },
  platform_unreachable: { hours: 6, fault: 'timeout' },
  quota_low: { used: 1234, limit: 1500 },
  never_delivered: { days: null, addedAt: AT, secretChangedAt: null },
  unusually_quiet: { lastAt: AT },
  silent_for_days: { lastAt: AT },
}

const VARIANTS: Problem[] = [
  { reason: 'token_expires', status: 'degraded', facts: { expiresAt: AT, isExpired: true } },
  { reason: 'never_delivered', status: 'quiet', facts: { days: 35, addedAt: AT, secretChangedAt: null } },
  { reason: 'never_delivered', status: 'quiet', facts: { days: null, addedAt: AT, secretChangedAt: AT } },
  { reason: 'webhook_test_failed', status: 'broken', facts: { check: checkOf('test_timed_out') } },
  { reason: 'webhook_test_failed', status: 'broken', facts: { check: checkOf('test_error_status') } },
  { reason: 'token_refused', status: 'broken', facts: { check: null } },
  { reason: 'not_verifiable', status: 'degraded', facts: { hasChannelId: true, hasChannelSecret: false } },
]
const PROBLEMS = [
  ...(Object.keys(REASONS) as Reason[]).map(
    (reason) => ({ reason, status: REASONS[reason], facts: FACTS[reason] }) as Problem,
  ),
  ...VARIANTS,
]

/** Texts that are the same in every language, or names of LINE's pages, of settings and of commands. */
const TERMS =
  /SECRETS_KEYS|\{\w+\}|docs\/first-account\.md|fullchain\.pem|Let's Encrypt|CONSOLE_PORT|METRICS_PORT|PORT|HOST|TLS|DNS|Slack|QR|SVG|Mattermost|Google Chat|Standard Webhooks|SMTP_URL|LINE (Official Account Manager|Developers Console|Developers)|Webhook URL|Basic settings|Your user ID|Bot basic ID|“?Auto-reply messages”?|“?Use webhook”?|“?Webhook redelivery”?|LINE Login|"?Use webhook"?|"?Webhook redelivery"?|Messaging API|oa-audience|\bdoctor\b|CONSOLE_TOKEN|PUBLIC_URL|RETENTION_DAYS|NDJSON|POST|JSON|null|query string|undefined|request id|https?|webhook event id|members|line|userId|externalId|tags|attributes|TRUST_PROXY|Host|HTTPS|CRM|API key|API|Not available|timeout|[Cc]hannel access token|[Cc]hannel (id|ID|secret)|[Bb]ot user (id|ID)|[Bb]asic id|[Ee]xternal id|[Uu]ser id|[Cc]lient id|[Aa]ccess token|[Cc]hat secret|[Cc]lient secret|[Tt]racking key|[Rr]eply token|module channel|[Ww]ebhook|Channel|SQLSTATE|[Bb]asic ID|@abc1234|CSV|MiB|KiB|organization|channel_id|[Cc]allback|\bname\b|[Cc]hannel|LINE|UTC|URL|ID|[Ii]d|[Ss]ecret|[Tt]oken|[Kk]ey|Z?X+|AGO|DAY/g

const englishIn = (text: string) => text.replaceAll(TERMS, '').match(/[A-Za-z]{2,}/g)

it('the service says each sentence about a field that has translations', () => {
  const directory = new URL('../../src/', import.meta.url)
  const sources = readdirSync(directory, { recursive: true, encoding: 'utf8' })
    .filter((name) => name.endsWith('.ts'))
    .map((name) => readFileSync(new URL(name, directory), 'utf8'))
    .join('\n')
  for (const sentence of Object.values(english.failure.fields)) expect(sources).toContain(sentence)
})

/** The sentences that responses have. */
const SAID = {
  ...(Object.fromEntries(Object.entries(ERRORS).map(([code, [, text]]) => [code, text])) as Record<
    'busy',
    string
  >),
  no_public_url: publicUrlFault(null),
  insecure_public_url: publicUrlFault('http://oa.example.com'),
}

it('the English table says what the service says', () => {
  expect(Object.keys(english.activity.actions).toSorted()).toEqual(ACTIONS.toSorted())
  for (const [code, message] of Object.entries(english.failure.messages))
    expect(message).toBe(SAID[code as 'busy'])
})

it('each text with values is filled with exactly these values, and no other is', () => {
  const directory = new URL('../../web/', import.meta.url)
  const texts = leavesOf(english)
  const filled = new Set<string>()
  for (const name of readdirSync(directory, { recursive: true, encoding: 'utf8' })) {
    if (!name.endsWith('.tsx')) continue
    const source = readFileSync(new URL(name, directory), 'utf8')
    for (const [, path = '', values = ''] of source.matchAll(
      /fill\(t\.([\w.]+), \{((?:[^{}]|\{[^{}]*\})*)\}/g,
    )) {
      const template = texts.get(`/${path.replaceAll('.', '/')}`)
      const given = [...values.matchAll(/(?:^|,)\s*(\w+)(?=\s*[,:]|\s*$)/g)].map(([, value]) => value)
      expect([name, path, valuesIn(template ?? '')]).toEqual([name, path, expect.arrayContaining(given)])
      expect(given.length, path).toBeGreaterThanOrEqual(valuesIn(template ?? '').length)
      filled.add(path)
    }
    for (const [, path = ''] of source.matchAll(/(?<!fill\()\bt\.([\w.]+)/g)) {
      const template = texts.get(`/${path.replaceAll('.', '/')}`)
      if (template !== undefined) expect([name, path, valuesIn(template)]).toEqual([name, path, []])
    }
  }
  expect(filled.size).toBeGreaterThan(50)
})

describe.each(OTHERS)('the table of %s', (language) => {
  it('has the same texts as the English one, with the same values', async () => {
    const { checks: _, ...t } = (await loadLanguage(language)).t
    const [texts, englishTexts] = [leavesOf(t), leavesOf(english)]
    expect([...texts.keys()]).toEqual([...englishTexts.keys()])
    for (const [path, text] of englishTexts) {
      // The other languages explain it without the name of the fault, which is English, and have no plural of verbs.
      const needed = valuesIn(text.replaceAll(/\{\w+\|.*?\}/g, '')).filter((name) => name !== 'fault')
      expect([path, valuesIn(texts.get(path) ?? '').toSorted()]).toEqual([path, needed.toSorted()])
    }
    const checksOf = async (other: Language) => leavesOf((await loadLanguage(other)).t.checks ?? {})
    expect([...(await checksOf(language)).keys()]).toEqual([...(await checksOf('ja')).keys()])
    expect((await checksOf(language)).size).toBeGreaterThan(20)
  })

  it('has no text that is empty or English', async () => {
    const { t } = await loadLanguage(language)
    for (const [path, text] of leavesOf(t)) {
      expect(text.trim(), path).not.toBe('')
      expect(englishIn(text), `${path}: ${text}`).toBeNull()
    }
    // The search finds English where it is.
    expect([...leavesOf(english).values()].filter(englishIn).length).toBeGreaterThan(200)
  })

  it('explains every problem with its facts, and how to fix it', async () => {
    const { t } = await loadLanguage(language)
    const formats = { number: (value: number) => `<${value}>`, relative: () => 'AGO', date: () => 'DAY' }
    for (const problem of PROBLEMS) {
      const { message, fix } = describeProblem(t, problem, formats)
      const inEnglish = describeProblem(english, problem, formats)
      for (const text of [message, fix]) {
        expect(englishIn(text), `${problem.reason}: ${text}`).toBeNull()
        expect(text).not.toBe('')
      }
      for (const fact of inEnglish.message.match(/<\d+>|AGO|DAY/g) ?? [])
        expect(message, problem.reason).toContain(fact)
    }
  })

  it('translates the messages of the service, but not a more precise one', async () => {
    const { t } = await loadLanguage(language)
    for (const [code, text] of Object.entries(t.failure.messages))
      expect(describeMessage(t, SAID[code as 'busy'])).toBe(text)
    expect(describeMessage(t, 'More precise')).toBe('More precise')
    expect(describeMessage(english, ERRORS.busy[1])).toBe(ERRORS.busy[1])
  })

  it('translates what the service says about a field of a form or a cell of a file', async () => {
    const { t } = await loadLanguage(language)
    for (const [kind, text] of Object.entries(t.failure.fields)) {
      const sentence = english.failure.fields[kind as 'empty']
      for (const message of [sentence, `${sentence}.`, `it ${sentence}.`])
        expect(describeFieldMessage(t, message)).toBe(text)
    }
    expect(describeFieldMessage(t, 'More precise')).toBe('More precise')
    expect(describeFieldMessage(english, 'must not be empty')).toBe('must not be empty')
  })

  it("explains failed checks with LINE's status and message, and those of older versions with the stored message", async () => {
    const { t } = await loadLanguage(language)
    for (const reason of Object.keys(t.checks?.failed ?? {}) as FailureReason[])
      expect(describeCheck(t, checkOf(reason))).toMatch(/^.+ \(403: Not available\)$/)
    expect(describeCheck(t, { name: 'identity', ok: false, message: 'stored' })).toBe('stored')
    expect(describeCheck(t, { name: 'identity', ok: true, message: 'stored' })).toBe(
      t.checks?.passed.identity,
    )
  })

  it('says what an event or an edit did', async () => {
    const { t } = await loadLanguage(language)
    const by = { keyId: '7', clientId: 'c1', clientName: null }
    const texts = [
      describeEffect(t, { kind: 'following' }),
      describeEffect(t, { kind: 'edited', fields: ['tags'], by }),
      describeEffect(t, { kind: 'edited', fields: ['tags'], by: null }),
      describeEffect(t, { kind: 'edited', fields: ['tags'], by: { actor: '@' } }),
      describeEffect(t, { kind: 'not_applied', failure: 'X' }),
    ]
    for (const text of texts) expect(englishIn(text.replace('c1', '')), text).toBeNull()
    expect(texts[1]).toContain('c1')
  })

  it('writes Gregorian years and Western digits', async () => {
    const { number, percent, signed, dateTime, date, relative } = await loadLanguage(language)
    const now = Date.parse(AT)
    expect([number(1234567), percent(0.5), signed(7)]).toEqual(['1,234,567', '50%', '+7'])
    expect(date(AT)).toMatch(/2026/)
    expect(dateTime(AT)).toMatch(/2026/)
    for (const at of [now + 7_200_000, now - 7_200_000])
      expect(relative(AT, at)).toMatch(/^[^A-Za-z]*2[^A-Za-z]+$/)
  })
})

it.each([
  [['zh-TW', 'zh', 'en-US'], 'zh-Hant-TW'],
  [['zh-Hant-HK', 'en'], 'zh-Hant-TW'],
  [['zh-CN', 'zh', 'en'], 'en'],
  [['zh-CN', 'ja'], 'ja'],
  [['th-TH'], 'th'],
  [['fr-FR'], 'en'],
  [['yue-HK'], 'zh-Hant-TW'],
])('a browser with the languages %s shows %s', (tags, language) => {
  expect(languageOf(tags)).toBe(language)
})

it('why an event was not applied is a sentence that the service writes, and is translated', async () => {
  const sources = ['intake/event-fields.ts', 'intake/line/line-payload.ts', 'intake/isolate.ts']
  const written = [...sources, 'intake/mbox/mbox-source.ts']
    .flatMap((name) => [
      ...readFileSync(new URL(`../../src/${name}`, import.meta.url), 'utf8').matchAll(
        /(["'`])(the .*?)\1(?=[,)\n])/g,
      ),
    ])
    .map(([, , text = '']) => text.replace(/\$\{sqlStateOf\(error\)\}/, '22003').replace(/\$\{\w+\}/, '200'))
  for (const language of OTHERS) {
    const { t } = await loadLanguage(language)
    for (const [kind, template] of Object.entries(english.eventFailures)) {
      const [before = '', after = ''] = template.split('{fact}')
      const sentence = written.find((text) => text.startsWith(before) && text.endsWith(after))
      expect(sentence, kind).toBeDefined()
      const text = describeFailure(t, sentence as string)
      expect(text).not.toBe(sentence)
      expect(text).toContain(sentence?.match(/\b200\b|22003/)?.[0] ?? '')
    }
    expect(describeFailure(t, 'of another version')).toBe('of another version')
  }
  expect(describeFailure(english, 'the user id is empty')).toBe('the user id is empty')
})

it('why there is no response is a sentence that the service writes, and is translated', async () => {
  const files = ['endpoints/post', 'endpoints/address', 'endpoints/resolver']
  const others = ['watch/notifications/send']
  const source = [...files, ...others]
    .map((name) => readFileSync(new URL(`../../src/${name}.ts`, import.meta.url), 'utf8'))
    .join('\n')
  const templates = Object.values(english.attemptFailures)
  const plain = source.replaceAll(/\$\{fix\}/g, '').replaceAll(/\$\{[^}]*\}/g, '{fact}')
  const isWritten = (template: string) => plain.includes(template.replace(/^no response: (?=t)/, ''))
  expect(templates.filter((template) => !isWritten(template))).toEqual([])
  for (const language of OTHERS) {
    const { t } = await loadLanguage(language)
    for (const [kind, template] of Object.entries(english.attemptFailures)) {
      const text = describeFailure(t, template.replace('{fact}', '7'))
      expect(text, kind).toBe(fill(t.attemptFailures[kind as 'timeout'], { fact: '7' }))
    }
    expect(describeFailure(t, 'Not Found')).toBe('Not Found')
  }
})

it('no text of the console has a command with the name of the program, which a checkout or a container lacks', async () => {
  for (const language of LANGUAGES) {
    const { t } = await loadLanguage(language)
    const found = [...leavesOf(t)].filter(([, text]) => /oa-audience [a-z]/.test(text))
    expect(found.map(([path]) => path).filter((path) => path !== '/product')).toEqual([])
  }
})

const ALWAYS_SEVERAL = ['/member/fromAll', '/member/theseAccounts', '/exports/personFromAll']

it('English has no number before a noun that is always in the plural', () => {
  const nouns =
    'accounts|blocks|clients|deliveries|endpoints|events|follow(er)?s|jobs|keys|members|people|rows'
  const found = [...leavesOf(english)].filter(([, text]) => new RegExp(`\\{\\w+\\} (${nouns})\\b`).test(text))
  expect(found.map(([path]) => path).filter((path) => !ALWAYS_SEVERAL.includes(path))).toEqual([])
})

it('English counts one thing in the singular', () => {
  const { t } = localize('en', english)
  const totals = (count: string) =>
    fill(t.fleet.totals, { accounts: count, followers: count, growth: '+1', deliveries: count })
  expect(totals('1')).toBe('1 account, 1 follower (+1 in 7 days), 1 delivery in 24 hours')
  expect(totals('2')).toBe('2 accounts, 2 followers (+1 in 7 days), 2 deliveries in 24 hours')
  expect(fill(t.endpoints.eventsOf, { count: '1' })).toBe('1 event')
  expect(fill(t.bulk.submit, { count: '1' })).toBe('Change 1 member')
  expect(fill(t.signIn.limited, { seconds: '1' })).toBe('Too many wrong attempts. Try again in 1 second.')
})

/** One word per thing: what an operator reads here, in commands and in messages has one name. */
const OTHER_WORDS: Array<[pattern: RegExp, word: string]> = [
  [/\btasks?\b/i, 'job'],
  [/\bsen[dt]\b[^.]*\bagain\b(?! later)/i, 'replay'],
  [/\b(waiting|backlog)\b/i, 'pending'],
  [/\b(tools?|receivers?)\b/i, 'endpoint'],
  [/\bplatforms?\b/i, 'LINE'],
  [/\b(unapplied|(not|never) applied)\b/i, 'failed'],
]

it.each(OTHER_WORDS)('no text of the console says %s for "%s"', (pattern) => {
  const found = [...leavesOf(english)].filter(([, text]) => pattern.test(text))
  expect(found).toEqual([])
})
