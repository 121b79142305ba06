/** The filter of the fleet, and which of the accounts that match are chosen. */
import { useEffect, useMemo, useState } from 'preact/hooks'
import type { AccountStatus } from '../../src/watch/account-status.ts'
import type { FleetRow } from '../../src/watch/fleet.ts'
import type { Json } from '../api.ts'
import { replaceQuery } from '../router.tsx'
import { stateIn, useLocalized } from '../texts.ts'
import { Chips, ChoiceFilter } from './filters.tsx'
import type { Selection } from './many-accounts.tsx'
import { StatusLabel } from './status.tsx'

type Account = Json<FleetRow>

export const STATUSES: AccountStatus[] = ['broken', 'degraded', 'quiet', 'ok']

export interface FleetFilter {
  q: string
  state: string | null
  /** reason of the worst problem */
  problem: string | null
  organization: string | null
}

/** All but the state, whose counts the page shows. */
export function searchFleet(accounts: Account[], { q, problem, organization }: FleetFilter): Account[] {
  const wanted = q.trim().toLowerCase()
  return accounts.filter(
    ({ id, name, basicId, organizationName, ...account }) =>
      (problem === null || account.problem?.reason === problem) &&
      (organization === null || account.organizationId === organization) &&
      [id, name, basicId ?? '', organizationName].some((value) => value.toLowerCase().includes(wanted)),
  )
}

/** @param all accounts, from which come the choices */
export function FleetFilters({
  filter,
  all,
  accounts,
}: {
  filter: FleetFilter
  all: Account[]
  accounts: Account[]
}) {
  const { t, number } = useLocalized()
  const { q: text, state: status } = filter
  const labelOf = (reason: string): [string, string] => [reason, stateIn(t.reasons, reason)]
  const problems = useMemo(() => [...new Set(all.flatMap(({ problem }) => problem?.reason ?? []))], [all])
  const organizations = useMemo(
    () => [...new Map(all.map(({ organizationId, organizationName }) => [organizationId, organizationName]))],
    [all],
  )
  return (
    <div class="filters">
      <input
        type="search"
        aria-label={t.fleet.search}
        placeholder={t.fleet.searchHint}
        value={text}
        onInput={(event) => replaceQuery({ q: event.currentTarget.value })}
      />
      <Chips label={t.fleet.states}>
        <button type="button" aria-pressed={status === null} onClick={() => replaceQuery({ state: null })}>
          {t.common.all} <b>{number(accounts.length)}</b>
        </button>
        {STATUSES.map((name) => (
          <button
            key={name}
            type="button"
            aria-pressed={status === name}
            onClick={() => replaceQuery({ state: status === name ? null : name })}
          >
            <StatusLabel status={name} />{' '}
            <b>{number(accounts.filter((account) => account.status === name).length)}</b>
          </button>
        ))}
      </Chips>
      {(problems.length > 1 || filter.problem !== null) && (
        <ChoiceFilter
          name="problem"
          label={t.fleet.problem}
          value={filter.problem}
          options={[['', t.common.all], ...problems.map(labelOf)]}
        />
      )}
      {(organizations.length > 1 || filter.organization !== null) && (
        <ChoiceFilter
          name="organization"
          label={t.account.organization}
          value={filter.organization}
          options={[['', t.common.all], ...organizations]}
        />
      )}
    </div>
  )
}

const NONE: ReadonlySet<string> = new Set()

/** The chosen accounts. All that match are sent as the filter, so that they are those that match when the job starts. */
export function useChosen({ q, state, problem, organization }: FleetFilter, accounts: Array<{ id: string }>) {
  const [given, setGiven] = useState<ReadonlySet<string> | 'all'>(NONE)
  useEffect(() => setGiven(NONE), [q, state, problem, organization])
  const all = useMemo(() => new Set(accounts.map(({ id }) => id)), [accounts])
  const chosen = given === 'all' ? all : new Set([...given].filter((id) => all.has(id)))
  const selection: Selection =
    given === 'all'
      ? {
          ...(state && { status: state as Account['status'] }),
          ...(problem && { problem }),
          ...(organization && { organization }),
          ...(q.trim() && { q: q.trim() }),
        }
      : { accounts: [...chosen] }
  return {
    ...{ chosen, selection },
    clear: () => setGiven(NONE),
    toggle: (id: string) => {
      const others = [...chosen].filter((each) => each !== id)
      setGiven(new Set(chosen.has(id) ? others : [...others, id]))
    },
    toggleAll: () => setGiven(given === 'all' ? NONE : 'all'),
  }
}
