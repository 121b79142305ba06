/** The plans with which PostgreSQL runs statements of the service, those inside functions and triggers included. */
import pg from 'pg'
import type { Connection } from '../../src/postgres/embedded/server.ts'
import { REQUEST_SETTINGS } from '../../src/postgres/pool/connection-settings.ts'
import type { BoundStatement } from '../../src/postgres/statement.ts'

/** A node of a plan, as EXPLAIN (ANALYZE, FORMAT JSON) writes it. */
interface PlanNode {
  'Node Type': string
  'Relation Name'?: string
  'Index Name'?: string
  'Actual Rows': number
  'Actual Loops': number
  'Rows Removed by Filter'?: number
  'Rows Removed by Index Recheck'?: number
  Plans?: PlanNode[]
}

/** One step of a plan that was executed. */
export interface Step {
  node: string
  /** null: reads no table */
  relation: string | null
  index: string | null
  /** rows that this step read, in all its executions */
  rows: number
}

export interface Plan {
  /** the statement's text */
  text: string
  steps: Step[]
}

/** Settings of auto_explain that report each plan as a notice, with the number of rows that each step read. */
const EXPLAIN: Array<[name: string, value: string]> = [
  ['auto_explain.log_analyze', 'on'],
  ['auto_explain.log_timing', 'off'],
  ['auto_explain.log_nested_statements', 'on'],
  ['auto_explain.log_parameter_max_length', '0'],
  ['auto_explain.log_format', 'json'],
  ['auto_explain.log_level', 'notice'],
  ['auto_explain.log_min_duration', '0'],
]

/** The option of a connection that makes its session report all plans. */
export const EXPLAIN_OPTIONS = [['session_preload_libraries', 'auto_explain'], ...EXPLAIN]
  .map(([name, value]) => `-c ${name}=${value}`)
  .join(' ')

/** The plan in a notice. Null: the notice is something else. */
export function readPlan(notice: string): Plan | null {
  const start = notice.indexOf('plan:\n')
  if (start === -1) return null
  const { 'Query Text': text, Plan: root } = JSON.parse(notice.slice(start + 'plan:\n'.length))
  return { text, steps: flatten(root) }
}

export async function openPlanner(connection: Connection) {
  const client = new pg.Client(connection)
  let plans: Plan[] = []
  client.on('notice', ({ message = '' }) => {
    const plan = readPlan(message)
    if (plan !== null) plans.push(plan)
  })
  await client.connect()
  await client.query(REQUEST_SETTINGS)
  await client.query("load 'auto_explain'; set statement_timeout = 0")
  for (const [name, value] of EXPLAIN) await client.query(`set ${name} = '${value}'`)
  /** Executes a statement on a session like those of requests, rolls it back, and returns the steps of all its plans. */
  const stepsOf = async ({ statement: { name, text }, values }: BoundStatement) => {
    await client.query('begin')
    plans = []
    try {
      await client.query({ name, text, values })
      // Ends the statement's portal, which logs its plan. A rollback would discard it.
      await client.query('savepoint executed')
      if (plans.length === 0) throw new Error(`no plan of ${name} was logged`)
      return plans.flatMap(({ steps }) => steps)
    } finally {
      await client.query('rollback')
    }
  }
  return { stepsOf, end: () => client.end() }
}

function flatten(node: PlanNode): Step[] {
  const removed = (node['Rows Removed by Filter'] ?? 0) + (node['Rows Removed by Index Recheck'] ?? 0)
  const step: Step = {
    node: node['Node Type'],
    relation: node['Relation Name'] ?? null,
    index: node['Index Name'] ?? null,
    rows: Math.round((node['Actual Rows'] + removed) * node['Actual Loops']),
  }
  return [step, ...(node.Plans ?? []).flatMap(flatten)]
}
