import type { Command } from 'commander'
import { ORGANIZATIONS } from '../operations/organizations.ts'
import { addOperations, performHere } from './operation-commands.ts'
import { addRemoveCommand } from './shared-commands.ts'

export function organizationsCommand(program: Command): void {
  const group = program
    .command('organizations')
    .description('manage the organizations that own official accounts')
  addOperations(group, Object.values(ORGANIZATIONS))
  addRemoveCommand(group, {
    noun: 'organization',
    description: 'remove an organization that has no accounts',
    preview: async (database, id) =>
      (await performHere(database, ORGANIZATIONS.contents, { id })).result ?? null,
    remove: async (database, id) => {
      const { result } = await performHere(database, ORGANIZATIONS.contents, { id })
      const input = { name: result?.name }
      return (await performHere(database, ORGANIZATIONS.remove, { id, input })).result ?? null
    },
  })
}
