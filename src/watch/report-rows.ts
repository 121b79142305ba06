/** The rows of the report, as the command, the page and the downloads show them. */
import { csvFile } from '../http/csv.ts'
import type { AccountId, OrganizationId } from '../ids.ts'

/** Null: nothing was counted. */
export type Figures = Record<
  | 'newFollowers'
  | 'returns'
  | 'blocks'
  | 'net'
  | 'followers'
  | 'blockedWithin7Days'
  | 'lineFollowers'
  | 'lineBlocks'
  | 'lineNewFollowers',
  number | null
> & {
  /** of sources only */
  stillFollowing?: number | null
  active?: number | null
}

export type ReportRow = Figures & {
  day?: string
  /** its Monday */
  week?: string
  /** such as 2026-11 */
  month?: string
  organizationId?: OrganizationId
  accountId?: AccountId
  /** of the organization or account */
  name?: string
  /** null: people without a named source */
  source?: string | null
  previous: Figures | null
}

export interface Report {
  from: string
  to: string
  /** the first counted day of all its accounts; null: none was counted */
  completeFrom: string | null
  rows: ReportRow[]
}

export const NONE: Figures = {
  ...{
    newFollowers: null,
    returns: null,
    blocks: null,
    net: null,
    followers: null,
    blockedWithin7Days: null,
  },
  ...{ lineFollowers: null, lineBlocks: null, lineNewFollowers: null },
}

export const figuresOf = (given: Partial<Figures>): Figures => ({
  ...(Object.fromEntries(
    Object.keys(NONE).map((name) => [name, given[name as keyof Figures] ?? null]),
  ) as Figures),
  ...('active' in given && { stillFollowing: given.stillFollowing ?? null, active: given.active ?? null }),
})

/** One flat object per row. The figures of the period before are named `previous…`. */
export const flatRows = (report: Report) =>
  report.rows.map(({ previous, ...row }) => ({
    ...row,
    ...Object.fromEntries(
      Object.keys(figuresOf(row)).map((name) => [
        `previous${name.charAt(0).toUpperCase()}${name.slice(1)}`,
        previous?.[name as keyof Figures] ?? null,
      ]),
    ),
  }))

export function reportCsv(report: Report): string {
  const rows = flatRows(report)
  return csvFile(
    Object.keys(rows[0] ?? {}),
    rows.map((row) => Object.values(row)),
  )
}
