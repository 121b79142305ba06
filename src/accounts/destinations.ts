/**
 * The account that the `destination` of a delivery names: the only account of the same organization with this bot user id and the same
 * channel secret as the account in the path. All accounts of a module channel share its webhook and its secret. A secret that only the
 * account in the path has proves nothing about another one (decision 29).
 */
import { type Queryable, type Row, statement } from '../postgres/statement.ts'
import type { AccountId } from './account.ts'

/** Limits the time of the lookup, as in versions_of_bot. If more accounts have the bot, the account in the path receives the delivery. */
const ACCOUNTS_OF_BOT_MAX = 20

/**
 * The secrets are compared in this process, because they are encrypted. The versions are computed once per delivery (`offset 0`), and
 * not once per account with the bot.
 *
 * $1 accounts in the paths bigint[]; $2 destinations text[]; $3 maximum number of accounts int
 */
const selectAccountsOfBots = statement('accounts-of-destinations')`
    select d.position::int as position, bot_versions, p.id as path_id,
           p.channel_secret as path_secret, named.id, named.channel_secret as secret
      from unnest($1::bigint[], $2::text[]) with ordinality as d (path_account_id, destination, position)
      join lateral (select * from official_account where id = d.path_account_id offset 0) p on true
      join lateral (select versions_of_bot(p.id, d.destination) as bot_versions offset 0) v on true
      left join lateral (select id, channel_secret from official_account
                          where organization_id = p.organization_id and bot_user_id = d.destination limit $3) named on true`

interface NamedRow extends Row {
  position: number
  bot_versions: bigint
  path_id: bigint
  path_secret: string | null
  id: bigint | null
  secret: string | null
}

interface Named {
  /** the account in the path if no account or several match */
  accountId: AccountId
  /** changes with the accounts that have the bot; a flush compares it */
  botVersions: bigint
}

/** One element per delivery. Undefined: the account in the path does not exist. */
export async function findNamedAccounts(
  database: Queryable,
  deliveries: Array<{ pathAccountId: AccountId; destination: string }>,
): Promise<Array<Named | undefined>> {
  const rows = await database.query<NamedRow>(selectAccountsOfBots, [
    deliveries.map(({ pathAccountId }) => pathAccountId),
    deliveries.map(({ destination }) => destination),
    ACCOUNTS_OF_BOT_MAX + 1,
  ])
  const named = deliveries.map((): NamedRow[] => [])
  for (const row of rows) named[row.position - 1]?.push(row)
  return named.map((candidates) => {
    const [first] = candidates
    if (first === undefined) return undefined
    const botVersions = first.bot_versions
    if (candidates.length > ACCOUNTS_OF_BOT_MAX) return { accountId: first.path_id, botVersions }
    const secretOf = (id: AccountId, stored: string | null) =>
      database.secretKeys.decryptOrNull('official_account.channel_secret', id, stored)
    const pathSecret = secretOf(first.path_id, first.path_secret)
    const matching = candidates.filter(
      ({ id, secret }) => id !== null && pathSecret !== null && secretOf(id, secret) === pathSecret,
    )
    const accountId = (matching.length === 1 ? matching[0]?.id : null) ?? first.path_id
    return { accountId, botVersions }
  })
}
