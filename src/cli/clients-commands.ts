import type { Command } from 'commander'
import { CLIENTS } from '../operations/clients.ts'
import { KEYS } from '../operations/keys.ts'
import { addOperations, performHere } from './operation-commands.ts'
import { addRemoveCommand, addRotateCommand } from './shared-commands.ts'

export function clientsCommand(program: Command): void {
  const group = program
    .command('clients')
    .description('manage the API clients that may call protected routes')
  addOperations(group, Object.values(CLIENTS))
  addRotateCommand(group, CLIENTS, {
    ...{ finish: 'refuse the previous secret' },
    ...{ discard: 'go back: refuse the new secret, and accept the previous one alone' },
    description: 'print a new secret, which is not shown again; the previous one stays valid until --finish',
  })
  addRemoveCommand(group, {
    noun: 'client',
    description: 'remove a client and its keys; its next request is refused',
    preview: async (database, id) => (await performHere(database, CLIENTS.removal, { id })).result ?? null,
    remove: async (database, id) => (await performHere(database, CLIENTS.remove, { id })).result ?? null,
  })
}

export function keysCommand(program: Command): void {
  const group = program
    .command('keys')
    .description('manage API keys; each gives a client access to one official account')
  addOperations(group, Object.values(KEYS))
}
