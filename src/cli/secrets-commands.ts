/** `oa-audience secrets`: how the secrets in the database are encrypted. */
import type { Command } from 'commander'
import { FatalError } from '../errors.ts'
import { commandActor } from '../operator/actor.ts'
import { decryptSecrets, type RunOptions, type RunResult, rotateSecrets } from '../operator/secrets.ts'
import type { Database } from '../postgres/database.ts'
import { examineSecrets } from '../secrets/examine-secrets.ts'
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
        printMany(
          counts.map(({ column, keyId, values }) => ({ column, key: keyId ?? 'plain text', values })),
          false,
        )
        if (unreadable.length > 0) {
          print('\nno key reads:')
          printMany(
            unreadable.map(({ column, id, accountId, keyId }) => ({
              column,
              id,
              account: accountId,
              key: keyId,
            })),
            false,
          )
        }
      }
      if (unreadable.length > 0) io.exitCode = 1
    })

  withJson(group.command('rotate'))
    .description('encrypt all secrets under the first key of SECRETS_KEYS; the service keeps working')
    .action(({ json }: { json?: boolean }) => runAndPrint('encrypted', rotateSecrets, json === true))

  withJson(group.command('decrypt'))
    .description(
      'store all secrets as plain text, before SECRETS_KEYS is removed; first put "plain," in front of the keys on all instances',
    )
    .option('--yes', 'decrypt; without this option, the command changes nothing')
    .action(({ yes, json }: { yes?: boolean; json?: boolean }) => {
      if (!yes)
        throw new FatalError(
          'nothing was decrypted. Put "plain," in front of the keys on all instances, which would otherwise encrypt again. Then run "oa-audience secrets decrypt --yes".',
        )
      return runAndPrint('decrypted', decryptSecrets, json === true)
    })
}

type Run = (
  database: Database,
  actor: ReturnType<typeof commandActor>,
  options: RunOptions,
) => Promise<RunResult>

async function runAndPrint(verb: string, run: Run, json: boolean): Promise<void> {
  const { values, unreadable } = await onDatabase(async (database) => {
    const progress = new Progress('secrets', null)
    try {
      return await run(database, commandActor(), { onProgress: (done) => progress.show(done) })
    } finally {
      progress.end()
    }
  })
  printOne({ [verb]: values, unreadable }, json)
  if (unreadable > 0) io.exitCode = 1
}
