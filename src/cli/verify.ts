/** `oa-audience accounts verify` */
import type { Command } from 'commander'
import type { Account } from '../accounts/account.ts'
import type { Verification } from '../accounts/verification.ts'
import { verifyAccount } from '../accounts/verify.ts'
import { readConfig } from '../config.ts'
import { AppError, FatalError } from '../errors.ts'
import { deliveryPaths } from '../intake/line/channel.ts'
import { LineApi } from '../line-api/client.ts'
import type { Database } from '../postgres/database.ts'
import { onDatabase, parseId, requireAccount, withJson } from './input.ts'
import { io, print } from './io.ts'
import { printJson, printMany, printOne } from './output.ts'

export function verifyCommand(group: Command): void {
  withJson(group.command('verify'))
    .description('ask the platform whether an account is set up correctly; exits with 1 if it is not')
    .argument('<id>', 'id of the account', parseId)
    .option('--test-webhook', 'also make the platform send a test delivery (at most 60 an hour)')
    .action(async (id: bigint, options: { testWebhook?: boolean; json?: boolean }) => {
      const verification = await onDatabase(async (database) =>
        verify(database, await requireAccount(database, id), options.testWebhook === true),
      )
      if (options.json) printJson(verification)
      else printVerification(verification)
      if (!verification.verified) io.exitCode = 1
    })
}

async function verify(database: Database, account: Account, testWebhook: boolean): Promise<Verification> {
  const { lineApiUrl, publicUrl } = readConfig(io.env)
  const lineApi = new LineApi(lineApiUrl)
  const verifier = { database, lineApi, publicUrl, webhookPaths: deliveryPaths, now: Date.now }
  try {
    return await verifyAccount(verifier, account, { testWebhook })
  } catch (error) {
    if (!(error instanceof AppError) || error.code !== 'platform_unavailable') throw error
    throw new FatalError(`${error.message} (in ${error.retryAfterSeconds} s)`)
  }
}

function printVerification({ verified, account, accountType, webhook, checks }: Verification): void {
  const rows = checks.map(({ name, ok, message }) => ({ check: name, ok: ok ? 'yes' : 'NO', message }))
  printMany(rows, false)
  print()
  printOne(
    {
      verified,
      account: account && `${account.displayName} (${account.basicId}, ${account.userId})`,
      type: accountType,
      webhook: webhook?.endpoint ?? null,
    },
    false,
  )
}
