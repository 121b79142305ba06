/** Every statement of the service. */
import { readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath, pathToFileURL } from 'node:url'
import { type Statement, statements } from '../../src/postgres/statement.ts'

const SOURCES = fileURLToPath(new URL('../../src', import.meta.url))

/** Of tools and tests, which other files of the same process may have loaded. */
const NOT_OF_THE_SERVICE = /^(demo|prove|test)-/

/** Loads the modules that can make a statement: those that import statement.ts. */
export async function loadStatements(): Promise<Statement[]> {
  const modules = readdirSync(SOURCES, { recursive: true, encoding: 'utf8' })
    .filter((name) => name.endsWith('.ts'))
    .map((name) => join(SOURCES, name))
    .filter((path) => readFileSync(path, 'utf8').includes("/statement.ts'"))
  await Promise.all(modules.map((path) => import(pathToFileURL(path).href)))
  return [...statements.values()].filter(({ name }) => !NOT_OF_THE_SERVICE.test(name))
}

/** Tables whose rows belong to one account, and grow with it. */
export const TENANT_TABLES = `
  audience_member audience_tag erased_member erased_person event event_key member_edit pending_erasure
  tracked_activity tracking_event unsent_message
`
  .trim()
  .split(/\s+/)

const MENTIONS_TENANT_TABLE = new RegExp(`\\b(${TENANT_TABLES.join('|')}|stored_event|flush_events)\\b`)

/** The statements over tenants' rows that `executed` lacks, by name. */
export async function missingTenantStatements(
  executed: (statement: Statement) => boolean,
): Promise<string[]> {
  const all = await loadStatements()
  const missing = all.filter(
    (statement) => MENTIONS_TENANT_TABLE.test(statement.text) && !executed(statement),
  )
  return missing.map(({ name }) => name).sort()
}

/**
 * Statements that serve all accounts on purpose: maintenance, and what operators see of all accounts. And audience-by-change-line-ids,
 * which nothing sends: user ids are exported without updatedSince.
 */
export const FOR_ALL_ACCOUNTS = `
  audience-by-change-line-ids count-due-profiles delete-edits delete-tombstones delete-unsent-messages has-events
  review-tracked-activity select-age-of-oldest-unrecorded-erasure select-expired-key-partitions
  select-missing-key-partitions
`
  .trim()
  .split(/\s+/)
