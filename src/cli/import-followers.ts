/** `oa-audience accounts import-followers` */
import type { Command } from 'commander'
import type { Account } from '../accounts/account.ts'
import { type ImportProgress, importFollowers } from '../audience/import-followers.ts'
import { readConfig } from '../config.ts'
import { LineApi } from '../line-api/client.ts'
import type { Database } from '../postgres/database.ts'
import { onDatabase, parseId, requireAccount, withJson } from './input.ts'
import { io } from './io.ts'
import { printOne } from './output.ts'
import { Progress } from './progress.ts'

export function importFollowersCommand(group: Command): void {
  withJson(group.command('import-followers'))
    .description("add everyone on the platform's list of followers; resumes an interrupted import")
    .requiredOption('--account <id>', 'id of the account', parseId)
    .action(async ({ account: id, json }: { account: bigint; json?: boolean }) => {
      const { seen, added, skipped } = await onDatabase(async (database) =>
        importAll(database, await requireAccount(database, id)),
      )
      printOne({ seen, added, skipped }, json === true)
    })
}

async function importAll(database: Database, account: Account): Promise<ImportProgress> {
  const lineApi = new LineApi(readConfig(io.env).lineApiUrl)
  const progress = new Progress('followers', null)
  let last: ImportProgress = { seen: 0, added: 0, skipped: 0 }
  try {
    for await (const state of importFollowers(database, lineApi, account)) {
      last = state
      progress.show(state.seen, ` (${state.added.toLocaleString('en')} new)`)
    }
    return last
  } finally {
    progress.end()
  }
}
