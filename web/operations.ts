/** Runs operations of the service by name. The types come from their definitions, of which the bundle contains nothing. */
import type { JobSummary } from '../src/jobs/job.ts'
import type { ACCOUNTS } from '../src/operations/accounts.ts'
import type { ACTIVITY } from '../src/operations/activity.ts'
import type { CHANNELS } from '../src/operations/channels.ts'
import type { CLIENTS } from '../src/operations/clients.ts'
import type { ENDPOINTS } from '../src/operations/endpoints.ts'
import type { EVENTS } from '../src/operations/events.ts'
import type { InputOf } from '../src/operations/fields.ts'
import type { FLEET } from '../src/operations/fleet.ts'
import type { ACCOUNT_JOBS, JOBS } from '../src/operations/jobs.ts'
import type { KEYS } from '../src/operations/keys.ts'
import type { MEMBERS } from '../src/operations/members.ts'
import type { Operation } from '../src/operations/operation.ts'
import type { OPERATORS } from '../src/operations/operators.ts'
import type { ORGANIZATIONS } from '../src/operations/organizations.ts'
import type { REPLAYS } from '../src/operations/replays.ts'
import type { REPORT } from '../src/operations/report.ts'
import type { SEGMENTS } from '../src/operations/segments.ts'
import { get, type Json, post, queryOf } from './api.ts'
import { type List, type Query, useList, useQuery } from './hooks.ts'

type Values<T> = T[keyof T]
type Defined =
  | Values<typeof ACCOUNTS>
  | Values<typeof ACCOUNT_JOBS>
  | Values<typeof ACTIVITY>
  | Values<typeof CHANNELS>
  | Values<typeof CLIENTS>
  | Values<typeof ENDPOINTS>
  | Values<typeof EVENTS>
  | Values<typeof FLEET>
  | Values<typeof JOBS>
  | Values<typeof KEYS>
  | Values<typeof MEMBERS>
  | Values<typeof OPERATORS>
  | Values<typeof ORGANIZATIONS>
  | Values<typeof REPLAYS>
  | Values<typeof REPORT>
  | Values<typeof SEGMENTS>
type Named<N> = Extract<Defined, { name: N }>
type NamesOf<W extends Operation['way']> = Extract<Defined, { way: W }>['name']
type ListName = NamesOf<'list'>
type ReadName = NamesOf<'read'>
type ChangeName = NamesOf<'add' | 'change' | 'call'>
type Returned<N> = Exclude<Named<N>['result'], undefined>

/** The plurals that are not the noun with an s. */
const PLURALS = {
  activity: 'activity',
  channel: 'notifications',
  fleet: 'fleet',
  report: 'report',
} as const
type PluralOf<Noun extends string> = Noun extends keyof typeof PLURALS ? (typeof PLURALS)[Noun] : `${Noun}s`
const pluralOf = (noun: string) => (PLURALS as Record<string, string>)[noun] ?? `${noun}s`

/** `endpoint.list` returns `endpoints`, and `client.keys` returns `keys`. */
type ItemsName<N> = N extends `${infer Noun}.list`
  ? PluralOf<Noun>
  : N extends `${string}.${infer Verb}`
    ? Verb
    : never
export type Item<N extends ListName> = Json<Returned<N>> extends Array<infer One> ? One : never
export type Result<N extends ListName | ReadName | ChangeName> = N extends ListName
  ? Record<ItemsName<N>, Array<Item<N>>>
  : [Returned<N>] extends [never]
    ? undefined
    : Json<Returned<N>>
/** One that needs no input takes none. */
export type Input<N> = keyof Named<N>['input'] extends never ? [] : [input: Json<InputOf<Named<N>['input']>>]
type Filter = Record<string, string | null | undefined>

/** As routeOf of src/operations/operation.ts. @param id null: it has no target */
export function pathOf(name: ListName | ReadName | ChangeName, id: string | null): string {
  const [noun = '', verb = ''] = name.split('.')
  const rest = ['list', 'show', 'add'].includes(verb) ? [] : [verb]
  return ['/api', pluralOf(noun), ...(id === null ? [] : [id]), ...rest].join('/')
}

/** Also of a list that has no further pages. @param id null: it has no target. @param filter null: nothing is loaded */
export const useRead = <N extends ReadName | ListName>(
  name: N,
  id: string | null,
  filter: Filter | null = {},
  refreshMs?: number,
): Query<Result<N>> =>
  useQuery<Result<N>>(filter === null ? null : pathOf(name, id) + queryOf(filter), refreshMs)

export const read = <N extends ReadName>(name: N, id: string | null, filter: Filter = {}) =>
  get<Result<N>>(pathOf(name, id) + queryOf(filter))

export function useItems<N extends ListName>(
  name: N,
  id: string | null = null,
  filter: Filter = {},
): List<Item<N>> {
  const [noun = '', verb = ''] = name.split('.')
  return useList<Item<N>>(pathOf(name, id) + queryOf(filter), verb === 'list' ? pluralOf(noun) : verb)
}

export const perform = <N extends ChangeName>(
  name: N,
  id: string | null,
  ...[input]: Input<N>
): Promise<Result<N>> => post<Result<N>>(pathOf(name, id), input)

/** Runs an operation that starts a job, if it takes long. */
export const startJob = async <N extends ChangeName>(name: N, id: string | null, ...[input]: Input<N>) =>
  (await post<{ job: Json<JobSummary> } | undefined>(pathOf(name, id), input))?.job
