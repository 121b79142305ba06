/** Everything that a command does with data, the console does. Each command has a page here, or the reason why it has none. */
import { readFileSync } from 'node:fs'
import type { Command } from 'commander'
import { expect, it } from 'vitest'
import { createProgram } from '../src/cli/run.ts'
import { startConsole } from './support/console.ts'
import { createTestDatabase } from './support/database.ts'

type Method = 'GET' | 'POST'
/** the page, and the route that does what the command does */
type Place = { page: string; route?: [Method, string] } | { reason: string }

const MACHINE = 'It starts, checks or prepares the service itself, on its machine.'
const KEYS_AND_FILES =
  'It needs keys, a ledger or a directory of the machine, and operators run it around a start of the service.'
const SAMPLE = 'It uses a database, a platform or accounts of its own.'

/** A command without a route is one whose page is tested elsewhere. */
const PLACES: Record<string, Place> = {
  serve: { reason: MACHINE },
  migrate: { reason: MACHINE },
  health: { reason: MACHINE },
  doctor: { reason: MACHINE },
  mcp: { reason: 'An assistant reads what the pages of the console show.' },
  setup: { reason: 'It adds what the forms of organizations, accounts and clients add one by one.' },
  demo: { reason: SAMPLE },
  simulate: { reason: SAMPLE },
  prove: { reason: SAMPLE },
  backup: { reason: KEYS_AND_FILES },
  restore: { reason: KEYS_AND_FILES },
  'secrets status': { reason: KEYS_AND_FILES },
  'secrets rotate': { reason: KEYS_AND_FILES },
  'erasures status': { reason: KEYS_AND_FILES },
  'erasures reapply': { reason: KEYS_AND_FILES },
  fleet: { page: '/', route: ['GET', '/api/fleet'] },

  'organizations add': { page: '/settings/organizations', route: ['POST', '/api/organizations'] },
  'organizations list': { page: '/settings/organizations', route: ['GET', '/api/organizations'] },
  'organizations rename': {
    page: '/settings/organizations',
    route: ['POST', '/api/organizations/:id/rename'],
  },
  'organizations remove': {
    page: '/settings/organizations',
    route: ['POST', '/api/organizations/:id/remove'],
  },

  'accounts add': { page: '/accounts/new', route: ['POST', '/api/accounts'] },
  'accounts update': { page: '/accounts/:id/edit', route: ['POST', '/api/accounts/:id'] },
  'accounts apply': { page: '/accounts/file', route: ['POST', '/api/fleet-file/apply'] },
  'accounts list': { page: '/', route: ['GET', '/api/fleet'] },
  'accounts show': { page: '/accounts/:id', route: ['GET', '/api/accounts/:id'] },
  'accounts verify': { page: '/accounts/:id', route: ['POST', '/api/accounts/:id/verify'] },
  'accounts import-followers': { page: '/accounts/:id', route: ['POST', '/api/accounts/:id/followers'] },
  'accounts mute': { page: '/accounts/:id', route: ['POST', '/api/accounts/:id/mute'] },
  'accounts unmute': { page: '/accounts/:id', route: ['POST', '/api/accounts/:id/unmute'] },
  'accounts remove': { page: '/accounts/:id', route: ['POST', '/api/accounts/:id/remove'] },

  'segments add': { page: '/accounts/:id/audience', route: ['POST', '/api/segments'] },
  'segments list': { page: '/accounts/:id/audience', route: ['GET', '/api/segments'] },
  'segments show': { page: '/accounts/:id/audience', route: ['GET', '/api/segments/:id'] },
  'segments update': { page: '/accounts/:id/audience', route: ['POST', '/api/segments/:id/update'] },
  'segments sync': { page: '/accounts/:id/audience', route: ['POST', '/api/segments/:id/sync'] },
  'segments remove': { page: '/accounts/:id/audience', route: ['POST', '/api/segments/:id/remove'] },
  'audience export': { page: '/accounts/:id/audience' },
  'audience import': { page: '/accounts/:id/audience' },
  'members show': {
    page: '/accounts/:account/audience/:user',
    route: ['GET', '/api/accounts/:account/members/:user'],
  },
  'members export-person': {
    page: '/accounts/:account/audience/:user',
    route: ['GET', '/api/accounts/:account/people/export'],
  },
  'members erase': { page: '/accounts/:account/audience/:user' },

  'clients add': { page: '/clients', route: ['POST', '/api/clients'] },
  'clients update': { page: '/clients/:id', route: ['POST', '/api/clients/:id/update'] },
  'clients rotate': { page: '/clients/:id', route: ['POST', '/api/clients/:id/rotate'] },
  'clients list': { page: '/clients', route: ['GET', '/api/clients'] },
  'clients revoke': { page: '/clients/:id', route: ['POST', '/api/clients/:id/revoke'] },
  'clients remove': { page: '/clients/:id' },
  'keys add': { page: '/clients/:id', route: ['POST', '/api/keys'] },
  'keys update': { page: '/clients/:id', route: ['POST', '/api/keys/:id/update'] },
  'keys list': { page: '/clients/:id', route: ['GET', '/api/clients/:id/keys'] },
  'keys revoke': { page: '/clients/:id', route: ['POST', '/api/keys/:id/revoke'] },

  'operators add': { page: '/settings/operators' },
  'operators list': { page: '/settings/operators' },
  'operators update': { page: '/settings/operators' },
  'operators disable': { page: '/settings/operators' },
  'operators enable': { page: '/settings/operators' },
  'operators invite': { page: '/settings/operators' },
  'activity list': { page: '/activity' },
  'activity export': { page: '/activity' },

  'endpoints add': { page: '/endpoints', route: ['POST', '/api/endpoints'] },
  'endpoints update': { page: '/endpoints/:id', route: ['POST', '/api/endpoints/:id/update'] },
  'endpoints test': { page: '/endpoints/:id', route: ['POST', '/api/endpoints/:id/test'] },
  'endpoints list': { page: '/endpoints', route: ['GET', '/api/endpoints'] },
  'endpoints pause': { page: '/endpoints/:id', route: ['POST', '/api/endpoints/:id/pause'] },
  'endpoints resume': { page: '/endpoints/:id', route: ['POST', '/api/endpoints/:id/resume'] },
  'endpoints remove': { page: '/endpoints/:id', route: ['POST', '/api/endpoints/:id/remove'] },
  'endpoints rotate': { page: '/endpoints/:id', route: ['POST', '/api/endpoints/:id/rotate'] },
  'endpoints deliveries': { page: '/endpoints/:id', route: ['GET', '/api/endpoints/:id/deliveries'] },
  'endpoints replay': { page: '/endpoints/:id', route: ['POST', '/api/endpoints/:id/replay'] },
  'endpoints resend': { page: '/endpoints/:id', route: ['POST', '/api/endpoints/:id/resend'] },
  'endpoints rehearse': { page: '/endpoints/:id', route: ['GET', '/api/endpoints/:id/rehearse'] },
  'endpoints retry': { page: '/endpoints/:id', route: ['POST', '/api/endpoints/:id/retry'] },

  'notifications add': { page: '/settings/notifications', route: ['POST', '/api/notifications'] },
  'notifications list': { page: '/settings/notifications', route: ['GET', '/api/notifications'] },
  'notifications show': {
    page: '/settings/notifications/:id',
    route: ['GET', '/api/notifications/:id/messages'],
  },
  'notifications update': {
    page: '/settings/notifications/:id',
    route: ['POST', '/api/notifications/:id/update'],
  },
  'notifications test': {
    page: '/settings/notifications/:id',
    route: ['POST', '/api/notifications/:id/test'],
  },
  'notifications pause': {
    page: '/settings/notifications/:id',
    route: ['POST', '/api/notifications/:id/pause'],
  },
  'notifications resume': {
    page: '/settings/notifications/:id',
    route: ['POST', '/api/notifications/:id/resume'],
  },
  'notifications remove': {
    page: '/settings/notifications/:id',
    route: ['POST', '/api/notifications/:id/remove'],
  },

  'tasks list': { page: '/settings/tasks', route: ['GET', '/api/jobs'] },
  'tasks show': { page: '/settings/tasks/:id', route: ['GET', '/api/jobs/:id'] },
  'tasks cancel': { page: '/settings/tasks/:id', route: ['POST', '/api/jobs/:id/cancel'] },

  'events list': { page: '/events', route: ['GET', '/api/events'] },
  'events show': { page: '/events/:id', route: ['GET', '/api/events/:id'] },
  'events set-aside': { page: '/events/:id', route: ['POST', '/api/events/:id/set-aside'] },
  'events set-aside-all': { page: '/events', route: ['POST', '/api/events/set-aside-all'] },
  'events export': { page: '/accounts/:id', route: ['GET', '/api/accounts/:account/events/export'] },
  'events retry': { page: '/events', route: ['POST', '/api/events/:id/retry'] },
}

const program = await createProgram(() => true)

/** The commands that do something, such as `accounts add`. */
function commandsOf(command: Command, path: string[] = []): string[] {
  if (command.commands.length === 0) return [path.join(' ')]
  return command.commands.flatMap((each) => commandsOf(each, [...path, each.name()]))
}

it('each command has a page of the console, or a reason why it has none', () => {
  expect(commandsOf(program).toSorted()).toEqual(Object.keys(PLACES).toSorted())
})

it('the pages and routes exist', async () => {
  const app = readFileSync(new URL('../web/app.tsx', import.meta.url), 'utf8')
  const { database } = await createTestDatabase()
  const running = await startConsole(database)
  for (const [command, place] of Object.entries(PLACES)) {
    if ('reason' in place) continue
    expect(app, command).toContain(`'${place.page}',`)
    if (place.route === undefined) continue
    const [method, url] = place.route
    expect(running.app.hasRoute({ method, url }), `${command}: ${method} ${url}`).toBe(true)
  }
})
