/** `oa-audience secrets`: how the secrets in the database are encrypted. */
import type { Command } from 'commander'
import { commandActor } from '../operators/actor.ts'
import { examineSecrets } from '../secrets/stored-secrets.ts'
import { rotateSecrets } from '../upkeep/secrets.ts'
import { onDatabase, withJson } from './input.ts'
import { io, print, printJson, printMany, printOne } from './io.ts'
import { Progress } from './progress.ts'

export function secretsCommand(program: Command): void {
  const group = program
    .command('secrets')
    .description('show and change how the secrets in the database are encrypted')

  withJson(group.command('status'))
    .description(
      'count the stored secrets by key, and list those that no key reads; exits with 1 if there are any',
    )
    .action(async ({ json }: { json?: boolean }) => {
      const status = await onDatabase((database) => database.session((session) => examineSecrets(session)))
      const { firstKeyId, counts, unreadable } = status
      if (json) printJson(status)
      else {
        print(`first key: ${firstKeyId ?? 'none, new secrets are plain text'}`)
        const stored = counts.map(({ column, keyId, values }) => ({
          column,
          key: keyId ?? 'plain text',
          values,
        }))
        printMany(stored, false)
        if (unreadable.length > 0) {
          print('\nno key reads:')
          const rows = unreadable.map(({ accountId: account, keyId: key, column, id }) => ({
            column,
            id,
            account,
            key,
          }))
          printMany(rows, false)
        }
      }
      if (unreadable.length > 0) io.exitCode = 1
    })

  withJson(group.command('rotate'))
    .description('encrypt all secrets under the first key of SECRETS_KEYS; the service keeps working')
    .action(async ({ json }: { json?: boolean }) => {
      const { values, unreadable } = await onDatabase(async (database) => {
        const progress = new Progress('secrets', null)
        try {
          return await rotateSecrets(database, commandActor(), (done) => progress.show(done))
        } finally {
          progress.end()
        }
      })
      printOne({ encrypted: values, unreadable }, json === true)
      if (unreadable > 0) io.exitCode = 1
    })
}
