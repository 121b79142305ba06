/** Everything that a command does with data, the console does. Each command has a page here, or the reason why it has none. */
import { readFileSync } from 'node:fs'
import type { Command } from 'commander'
import { expect, it } from 'vitest'
import { createProgram } from '../src/cli/run.ts'
import { startConsole } from './support/console.ts'
import { createTestDatabase } from './support/database.ts'

/** Commands without a page. */
const REASONS: Record<string, string[]> = {
  'It starts, checks or prepares the service itself, on its machine.': [
    'serve',
    'migrate',
    'health',
    'doctor',
  ],
  'An assistant reads what the pages of the console show.': ['mcp'],
  'It adds what the forms of organizations, accounts and clients add one by one.': ['setup'],
  'It uses a database, a platform or accounts of its own.': ['demo', 'simulate', 'prove'],
  'It needs keys, a ledger or a directory of the machine, and operators run it around a start of the service.':
    [...['backup', 'restore', 'secrets status', 'secrets rotate', 'erasures status', 'erasures reapply']],
}

/** The commands of each page. */
const PAGES: Record<string, string[]> = {
  '/': ['fleet', 'accounts list'],
  '/accounts/new': ['accounts add'],
  '/accounts/file': ['accounts apply'],
  '/accounts/:id': [
    ...['accounts show', 'accounts verify', 'accounts import-followers', 'accounts mute', 'accounts unmute'],
    ...['accounts remove', 'events export'],
  ],
  '/accounts/:id/edit': ['accounts update'],
  '/accounts/:id/audience': [
    ...[
      'segments add',
      'segments list',
      'segments show',
      'segments update',
      'segments sync',
      'segments remove',
    ],
    ...['audience export', 'audience import'],
  ],
  '/accounts/:account/audience/:user': ['members show', 'members export-person', 'members erase'],
  '/clients': ['clients add', 'clients list'],
  '/clients/:id': [
    ...['clients update', 'clients rotate', 'clients revoke', 'clients remove'],
    ...['keys add', 'keys update', 'keys list', 'keys revoke'],
  ],
  '/endpoints': ['endpoints add', 'endpoints list'],
  '/endpoints/:id': [
    ...['endpoints update', 'endpoints test', 'endpoints pause', 'endpoints resume', 'endpoints remove'],
    ...['endpoints rotate', 'endpoints deliveries', 'endpoints replay', 'endpoints resend'],
    ...['endpoints rehearse', 'endpoints retry'],
  ],
  '/events': ['events list', 'events set-aside-all', 'events retry'],
  '/events/:id': ['events show', 'events set-aside'],
  '/activity': ['activity list', 'activity export'],
  '/settings/organizations': [
    ...['organizations add', 'organizations list', 'organizations rename', 'organizations remove'],
  ],
  '/settings/operators': [
    ...['operators add', 'operators list', 'operators update', 'operators disable', 'operators enable'],
    'operators invite',
  ],
  '/settings/notifications': ['notifications add', 'notifications list'],
  '/settings/notifications/:id': [
    ...['notifications show', 'notifications update', 'notifications test', 'notifications pause'],
    ...['notifications resume', 'notifications remove'],
  ],
  '/settings/tasks': ['tasks list'],
  '/settings/tasks/:id': ['tasks show', 'tasks cancel'],
}

/** Routes of commands that are not operations. The definition of an operation gives its route. */
const ROUTES = `
  GET /api/fleet, GET /api/accounts/:id, POST /api/accounts/:id/verify,
  POST /api/fleet-file/apply, GET /api/accounts/:account/members/:user, GET /api/accounts/:account/people/export,
  GET /api/accounts/:account/events/export
`

const program = await createProgram(() => true)

/** The commands that do something, such as `accounts add`. */
function commandsOf(command: Command, path: string[] = []): string[] {
  if (command.commands.length === 0) return [path.join(' ')]
  return command.commands.flatMap((each) => commandsOf(each, [...path, each.name()]))
}

it('each command has a page of the console, or a reason why it has none', () => {
  const placed = [...Object.values(PAGES), ...Object.values(REASONS)].flat()
  expect(commandsOf(program).toSorted()).toEqual(placed.toSorted())
})

it('the pages and routes exist', async () => {
  const pages = readFileSync(new URL('../web/app.tsx', import.meta.url), 'utf8')
  for (const page of Object.keys(PAGES)) expect(pages).toContain(`'${page}',`)
  const { app } = await startConsole((await createTestDatabase()).database)
  for (const route of ROUTES.trim().split(/,\s+/)) {
    const [method, url] = route.split(' ') as ['GET' | 'POST', string]
    expect(app.hasRoute({ method, url }), route).toBe(true)
  }
})
