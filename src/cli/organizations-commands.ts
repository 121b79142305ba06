/** `oa-audience organizations`, `clients`, `keys` and `segments`: what operations define. */
import { Argument } from 'commander'
import { scopeOfAccount } from '../accounts/scope.ts'
import { SYNC_TEXTS } from '../audience/line-audience-texts.ts'
import { countMatching } from '../audience/list-pages.ts'
import { CLIENTS } from '../operations/clients.ts'
import { KEYS } from '../operations/keys.ts'
import { ORGANIZATIONS } from '../operations/organizations.ts'
import { SEGMENTS, type Segment } from '../operations/segments.ts'
import type { CliCommand } from './command.ts'
import { printOne } from './io.ts'
import {
  addOperation,
  addOperations,
  addRemoveCommand,
  addRotateCommand,
  performHere,
} from './operation-commands.ts'

export function organizationsCommand(program: CliCommand): void {
  const group = program
    .command('organizations')
    .description('manage the organizations that own official accounts')
  addOperations(group, Object.values(ORGANIZATIONS))
  const { contents, remove } = ORGANIZATIONS
  addRemoveCommand(group, 'remove an organization that has no accounts', [contents, remove])
}

export function clientsCommand(program: CliCommand): void {
  const group = program
    .command('clients')
    .description('manage the API clients that may call protected routes')
  addOperations(group, Object.values(CLIENTS))
  addRotateCommand(group, CLIENTS, {
    finish: 'refuse the previous secret',
    discard: 'go back: refuse the new secret, and accept the previous one alone',
    description: 'print a new secret, which is not shown again; the previous one stays valid until --finish',
  })
  const { removal, remove } = CLIENTS
  addRemoveCommand(group, 'remove a client and its keys; its next request is refused', [removal, remove])
}

export function keysCommand(program: CliCommand): void {
  const group = program
    .command('keys')
    .description('manage API keys; each gives a client access to one official account')
  addOperations(group, Object.values(KEYS))
}

export function segmentsCommand(program: CliCommand): void {
  const group = program.command('segments').description('manage segments: named conditions on members')
  addOperations(group, Object.values(SEGMENTS))
  addOperation(group, SEGMENTS.show)
    .description('show a segment with the exact number of its members, which are counted now')
    .onDatabase(
      async (database, id: bigint) => {
        const { result } = await performHere(database, SEGMENTS.show, { id })
        const { organizationId, ...segment } = (result as { segment: Segment }).segment
        const scope = scopeOfAccount({ id: segment.accountId, organizationId })
        const count = await countMatching(database, scope, { segment })
        return { ...segment, count, countedAt: new Date().toISOString() }
      },
      (shown) => printOne({ ...shown, syncText: SYNC_TEXTS[shown.syncState] }),
    )
  addOperation(group, SEGMENTS.sync)
    .description(
      'upload the followers in a segment to LINE as a new audience, once a day or now; off deletes the audiences',
    )
    .addArgument(new Argument('<mode>').choices(['on', 'off', 'now']))
    .onDatabase(async (database, id: bigint, mode: string) => {
      const input = SEGMENTS.sync.check({ mode })
      await performHere(database, SEGMENTS.sync, { id, input })
      return { id, sync: mode }
    })
}
