/** `oa-audience organizations`, `clients` and `keys`: what operations define. */
import type { Command } from 'commander'
import { CLIENTS } from '../operations/clients.ts'
import { KEYS } from '../operations/keys.ts'
import { ORGANIZATIONS } from '../operations/organizations.ts'
import { addOperations, addRemoveCommand, addRotateCommand } from './operation-commands.ts'

export function organizationsCommand(program: Command): void {
  const group = program
    .command('organizations')
    .description('manage the organizations that own official accounts')
  addOperations(group, Object.values(ORGANIZATIONS))
  const { contents, remove } = ORGANIZATIONS
  addRemoveCommand(group, 'remove an organization that has no accounts', [contents, remove])
}

export function clientsCommand(program: Command): void {
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

export function keysCommand(program: Command): void {
  const group = program
    .command('keys')
    .description('manage API keys; each gives a client access to one official account')
  addOperations(group, Object.values(KEYS))
}
