/** Everything that a command does with data, the console does. A command that is no operation has a route here, or the reason why it has none. */
import type { Command } from 'commander'
import { expect, it } from 'vitest'
import { createProgram } from '../../src/cli/run.ts'
import { OPERATIONS } from '../../src/operations/all.ts'
import { routeOf } from '../../src/operations/operation.ts'
import { startConsole } from '../support/console.ts'
import { createTestDatabase } from '../support/database.ts'

const REASONS = {
  'It starts, checks or prepares the service itself, on its machine.': 'serve, migrate, health, doctor',
  'An assistant reads what the pages of the console show.': 'mcp',
  'It adds what the forms of organizations, accounts and clients add one by one.': 'setup',
  'It stores nothing. A dialog of the console makes the same by the same function.': 'links add',
  'It uses a database, a platform or accounts of its own.': 'demo, simulate, prove',
  'It needs keys, a ledger or a directory of the machine, and operators run it around a start of the service.':
    'backup, restore, secrets status, secrets rotate, erasures status, erasures reapply',
}

const ROUTES: Record<string, string> = {
  'GET /api/fleet': 'fleet',
  'GET /api/report': 'report',
  'POST /api/accounts/:id/followers': 'accounts import-followers',
  'POST /api/fleet-file/apply': 'accounts apply',
  'GET /api/accounts/:account/audience/export': 'audience export',
  'POST /api/accounts/:id/import-members': 'audience import',
  'GET /api/accounts/:id/member': 'members show',
  'GET /api/accounts/:account/people/export': 'members export-person',
  'POST /api/accounts/:id/erase-person': 'members erase',
  'GET /api/accounts/:account/events/export': 'events export',
  'GET /api/activity/export': 'activity export',
}

/** The commands that do something, such as `accounts add`. */
function commandsOf(command: Command, path: string[] = []): string[] {
  if (command.commands.length === 0) return [path.join(' ')]
  return command.commands.flatMap((each) => commandsOf(each, [...path, each.name()]))
}

it('each command is an operation, or has a route of the console, or a reason why it has none', async () => {
  const operations = OPERATIONS.map(({ name, noun }) => `${noun.plural} ${name.slice(name.indexOf('.') + 1)}`)
  const others = commandsOf(await createProgram(() => true)).filter((name) => !operations.includes(name))
  const placed = [...Object.values(REASONS), ...Object.values(ROUTES)].flatMap((names) => names.split(', '))
  expect(others.toSorted()).toEqual(placed.toSorted())
})

it('the routes exist', async () => {
  const { app } = await startConsole((await createTestDatabase()).database)
  const routes = [
    ...Object.keys(ROUTES),
    ...OPERATIONS.map((each) => `${routeOf(each).method} /api${routeOf(each).path}`),
  ]
  for (const route of routes) {
    const [method, url] = route.split(' ') as ['GET' | 'POST', string]
    expect(app.hasRoute({ method, url }), route).toBe(true)
  }
})
