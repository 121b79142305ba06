import type { Command } from 'commander'
import { FatalError } from '../errors.ts'
import {
  addOrganization,
  findOrganizationContents,
  listOrganizations,
  removeOrganization,
  renameOrganization,
} from '../operator/accounts/organizations.ts'
import { ALL_ORGANIZATIONS, commandActor } from '../operator/actor.ts'
import type { Database } from '../postgres/database.ts'
import { onDatabase, parseId, withJson } from './input.ts'
import { type Printable, printOne } from './io.ts'
import { addListCommand, addRemoveCommand } from './shared-commands.ts'

export function organizationsCommand(program: Command): void {
  const group = program
    .command('organizations')
    .description('manage the organizations that own official accounts')

  withJson(group.command('add'))
    .description('add an organization')
    .requiredOption('--name <name>', 'display name')
    .action(async ({ name, json }: { name: string; json?: boolean }) => {
      if (name.trim() === '') throw new FatalError('--name must not be empty')
      const id = await onDatabase((database) => addOrganization(database, commandActor(), name))
      printOne({ id }, json === true)
    })

  withJson(group.command('rename'))
    .description('rename an organization')
    .argument('<id>', 'id of the organization, as `organizations list` shows it', parseId)
    .requiredOption('--name <name>', 'display name')
    .action(async (id: bigint, { name, json }: { name: string; json?: boolean }) => {
      if (name.trim() === '') throw new FatalError('--name must not be empty')
      await onDatabase((database) => renameOrganization(database, commandActor(), id, name))
      printOne({ id, name }, json === true)
    })

  addListCommand(group, 'list all organizations', (database) =>
    listOrganizations(database, ALL_ORGANIZATIONS),
  )

  addRemoveCommand(group, {
    noun: 'organization',
    description: 'remove an organization that has no accounts',
    preview: (database, id) => findOrganizationContents(database, ALL_ORGANIZATIONS, id),
    remove,
  })
}

async function remove(database: Database, id: bigint): Promise<Printable> {
  const contents = await removeOrganization(database, commandActor(), id)
  if (contents.accounts === 0) return contents
  throw new FatalError(
    `organization ${id} still has accounts: ${contents.accounts}. Remove each of them first, with "oa-audience accounts remove".`,
  )
}
