/** Everything that a database holds, to show that something has changed nothing. */
import type { TextDatabase } from '../../tools/text-database.ts'

/** The number of rows of every table and a hash of them, by the name of the table. Tables without rows are left out. */
export function readContents(database: TextDatabase): Promise<Record<string, string>> {
  return database.session(async (session) => {
    const tables = await session.query<{ name: string }>(
      `select relname as name from pg_class
        where relkind in ('r', 'p') and not relispartition and relnamespace = 'public'::regnamespace order by 1`,
    )
    const contents: Record<string, string> = {}
    for (const { name } of tables) {
      const [row] = await session.query<{ count: bigint; hash: string }>(
        `select count(*), md5(string_agg(t::text, ';' order by t::text)) as hash from ${name} t`,
      )
      if (row !== undefined && row.count > 0n) contents[name] = `${row.count} rows, ${row.hash}`
    }
    return contents
  })
}
