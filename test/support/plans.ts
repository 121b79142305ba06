/** The plans with which PostgreSQL runs statements of the service, those inside functions and triggers included. */
import pg from 'pg'
import { connectionSettings } from '../../src/postgres/connection-settings.ts'
import type { Connection } from '../../src/postgres/embedded/server.ts'
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

export interface Planner {
  /** Executes a statement on a session like those of requests, rolls it back, and returns the steps of all its plans. */
  stepsOf: (bound: BoundStatement) => Promise<Step[]>
  end: () => Promise<void>
}

export async function openPlanner(connection: Connection): Promise<Planner> {
  const client = new pg.Client(connection)
  let plans: PlanNode[] = []
  client.on('notice', ({ message = '' }) => {
    const start = message.indexOf('plan:\n')
    if (start !== -1) plans.push(JSON.parse(message.slice(start + 'plan:\n'.length)).Plan)
  })
  await client.connect()
  await client.query(connectionSettings('request'))
  await client.query(`load 'auto_explain'; set statement_timeout = 0;
    set auto_explain.log_analyze = on; set auto_explain.log_timing = off; set auto_explain.log_nested_statements = on;
    set auto_explain.log_format = json; set auto_explain.log_level = notice; set auto_explain.log_min_duration = 0`)
  const stepsOf = async ({ statement: { name, text }, values }: BoundStatement) => {
    await client.query('begin')
    plans = []
    try {
      await client.query({ name, text, values })
      // Ends the statement's portal, which logs its plan. A rollback would discard it.
      await client.query('savepoint executed')
      if (plans.length === 0) throw new Error(`no plan of ${name} was logged`)
      return plans.flatMap(flatten)
    } finally {
      await client.query('rollback')
    }
  }
  return { stepsOf, end: () => client.end() }
}

/** A node that was planned but not executed has no loops. */
function flatten(node: PlanNode): Step[] {
  const loops = node['Actual Loops']
  const removed = (node['Rows Removed by Filter'] ?? 0) + (node['Rows Removed by Index Recheck'] ?? 0)
  const step: Step = {
    node: node['Node Type'],
    relation: node['Relation Name'] ?? null,
    index: node['Index Name'] ?? null,
    rows: Math.round((node['Actual Rows'] + removed) * loops),
  }
  return [...(loops > 0 ? [step] : []), ...(node.Plans ?? []).flatMap(flatten)]
}
