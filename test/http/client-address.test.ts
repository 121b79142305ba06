/** The address of the client behind chains of proxies, as the rate limit, the budgets and the log see it. */
import fc from 'fast-check'
import { expect, it } from 'vitest'
import { createClientKey } from '../../src/http/rate-limit.ts'
import { createServer } from '../../src/http/server.ts'

const PROXIES = ['127.0.0.1', '10.0.0.0/8', 'fd00::/8']

function startServer(trustProxy = PROXIES) {
  const lines: string[] = []
  const app = createServer({ logLevel: 'silent', trustProxy }, { write: (line) => void lines.push(line) })
  const logged: unknown[] = []
  app.requestObservers.push(({ ip }) => logged.push(ip))
  const keyOf = createClientKey()
  app.get('/', async (request) => keyOf(request))
  const addressOf = async (forwardedFor: string | string[], remoteAddress = '127.0.0.1') => {
    const headers = { 'x-forwarded-for': forwardedFor }
    return (await app.inject({ url: '/', remoteAddress, headers })).body
  }
  return { addressOf, logged }
}

const CLIENT = '198.51.100.7'
const CLIENT_V6 = '2001:db8::'

/** Ways in which proxies write one address. */
const FORMS_V4 = ['A', 'A:51234', '::ffff:A', '[::ffff:A]', '[::ffff:A]:51234']
const FORMS_V6 = ['A', '[A]', '[A]:51234']
const write = (form: string, address: string) => form.replace('A', address)

it.each([
  ['one proxy', CLIENT, CLIENT],
  ['a forged entry', `203.0.113.9, ${CLIENT}`, CLIENT],
  ['two proxies', `${CLIENT}, 10.0.0.2`, CLIENT],
  ['two proxies and a forged trusted address', `10.0.0.9, ${CLIENT}, 10.0.0.2`, CLIENT],
  ['Azure, which appends the port', `${CLIENT}:51234`, CLIENT],
  ['two proxies that append ports', `${CLIENT}:51234, 10.0.0.2:443`, CLIENT],
  ['a client with IPv6 and a port', `[2001:db8::1]:51234, [fd00::2]:443`, CLIENT_V6],
  ['mapped addresses of a dual-stack proxy', `::ffff:${CLIENT}, ::ffff:10.0.0.2`, CLIENT],
  ['mapped addresses with ports', `[::ffff:${CLIENT}]:51234, [::ffff:10.0.0.2]:443`, CLIENT],
  ['empty entries and spaces', ` , ${CLIENT} ,\t, 10.0.0.2 ,`, CLIENT],
  ['no space', `203.0.113.9,${CLIENT},10.0.0.2`, CLIENT],
  ['several headers', ['203.0.113.9', CLIENT, '10.0.0.2:443'], CLIENT],
])('is right behind %s', async (_, forwardedFor, address) => {
  for (const remote of ['127.0.0.1', '::ffff:127.0.0.1', '10.9.9.9', 'fd00::1']) {
    expect(await startServer().addressOf(forwardedFor, remote)).toBe(address)
  }
})

it.each([
  ['nobody is trusted', [], '127.0.0.1', '127.0.0.1'],
  ['the connection does not come from a trusted proxy', PROXIES, '203.0.113.1', '203.0.113.1'],
])('is that of the connection if %s', async (_, trustProxy, remote, address) => {
  expect(await startServer(trustProxy).addressOf(`${CLIENT}, 10.0.0.2`, remote)).toBe(address)
})

it('is the one that the outermost trusted proxy names, if even that is trusted', async () => {
  expect(await startServer().addressOf('10.0.0.5, 10.0.0.2')).toBe('10.0.0.5')
})

it.each(['unknown', '_hidden', '198.51.100.7.9', '"198.51.100.7"'])(
  'is that of all clients without a usable address if a trusted proxy writes %s',
  async (text) => {
    expect(await startServer().addressOf(`203.0.113.9, ${text}, 10.0.0.2`)).toBe('unknown')
  },
)

it('is logged in one notation', async () => {
  const { addressOf, logged } = startServer()
  for (const form of FORMS_V4) await addressOf(write(form, CLIENT))
  for (const form of FORMS_V6) await addressOf(write(form, '2001:db8::1'))
  await addressOf('', `::ffff:${CLIENT}`)
  expect(new Set(logged.slice(0, FORMS_V4.length))).toEqual(new Set([CLIENT]))
  expect(new Set(logged.slice(FORMS_V4.length, -1))).toEqual(new Set(['2001:db8::1']))
  expect(logged.at(-1)).toBe(CLIENT)
})

const trusted = fc.oneof(
  fc.ipV4().map((address) => address.replace(/^\d+/, '10')),
  fc.constantFrom('fd00::2', 'fd12:3456::1', '127.0.0.1'),
)
const untrusted = fc.tuple(fc.integer({ min: 1, max: 254 }), fc.constantFrom('198.51.100.', '203.0.113.'))
const written = (address: string) =>
  fc.constantFrom(...(address.includes(':') ? FORMS_V6 : FORMS_V4)).map((form) => write(form, address))
const forged = fc.oneof(
  trusted.chain(written),
  fc.ipV4().chain(written),
  fc.constantFrom('', ' ', 'unknown', '127.1', '0x7f000001', '2130706433', '::1', '[::1]:1', '%00', '"', ';'),
  fc.string({ maxLength: 20, unit: fc.constantFrom(...'0123456789abcdef.:[]%, "') }),
)

it('is that of the first untrusted hop, for any entries that it forged', async () => {
  const { addressOf } = startServer()
  const hops = fc.tuple(untrusted, fc.array(trusted.chain(written), { maxLength: 4 }), fc.array(forged))
  await fc.assert(
    fc.asyncProperty(
      hops,
      fc.constantFrom(',', ', ', ' ,\t', ', , '),
      async ([[last, net], own, lies], comma) => {
        const client = `${net}${last}`
        const form = FORMS_V4[last % FORMS_V4.length] as string
        expect(await addressOf([...lies, write(form, client), ...own].join(comma))).toBe(client)
      },
    ),
  )
})
