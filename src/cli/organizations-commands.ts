import type { Command } from 'commander'
import { addOrganization } from '../accounts/provisioning.ts'
import { FatalError } from '../errors.ts'
import { listOrganizations } from '../operator/accounts.ts'
import { findOrganizationContents, removeOrganization } from '../operator/remove.ts'
import type { Database } from '../postgres/database.ts'
import { onDatabase, withJson } from './input.ts'
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
      const id = await onDatabase((database) => addOrganization(database, name))
      printOne({ id }, json === true)
    })

  addListCommand(group, 'list all organizations', listOrganizations)

  addRemoveCommand(group, {
    noun: 'organization',
    description: 'remove an organization that has no accounts',
    preview: findOrganizationContents,
    remove,
  })
}

async function remove(database: Database, id: bigint): Promise<Printable | null> {
  const contents = await removeOrganization(database, id)
  if (contents === null || contents.accounts === 0) return contents
  throw new FatalError(
    `organization ${id} still has accounts: ${contents.accounts}. Remove each of them first, with "oa-audience accounts remove".`,
  )
}
