/** Compares what was acknowledged with what the service answers and what the database holds, while nothing is in flight. */
import { setTimeout as sleep } from 'node:timers/promises'
import { BrokenBook } from './requests.mjs'

/** Endpoints: a lease of 30 s of a killed process, and repetitions after 5 s and 10 s, each with up to 50 % more. */
const DELIVERY_LIMIT_MS = 120_000
/** Profiles of the newest members take some seconds. */
const FEED_LIMIT_MS = 30_000
const POLL_MS = 500
/** A wrong book may affect every member. */
const SHOWN_MAX = 10
/** The newest erased people, for whom the content of all events is read. */
const READ_FOR_MAX = 5
/** Weeks of seven minutes, and the day until the next maintenance, twice in case that PostgreSQL was killed. */
const EVENT_AGE_MAX_DAYS = 14 + 7 + 2
const TRACKING_AGE_MAX_DAYS = 3 + 1 + 2

/**
 * Throws a BrokenBook that names what is wrong.
 * @returns {Promise<{members: number, events: number, updates: number}>} what was compared
 */
export async function checkBooks({ tenants, people, clients, receiver, database }) {
  const wrong = []
  const compared = { members: 0, events: 0, updates: 0 }
  for (const tenant of tenants) {
    const members = await clients.stream(tenant)
    wrong.push(...compareMembers(tenant, people, members))
    wrong.push(...(await compareFeed(tenant, clients)))
    compared.members += members.length
    for (const { eventCount, version } of members) {
      compared.events += eventCount
      compared.updates += version - 1
    }
  }
  // At full rate these read gigabytes, which takes longer than a statement of a request may.
  await database.session(async (session) => {
    wrong.push(...(await findErased(session, people)), ...(await findUnsent(session, people)))
    wrong.push(...(await findKeptTooLong(session)))
  })
  require(wrong)
  await waitForEndpoints(receiver)
  return compared
}

function require(wrong) {
  if (wrong.length === 0) return
  const shown = wrong.slice(0, SHOWN_MAX).join('\n  ')
  throw new BrokenBook(`${wrong.length} discrepancies:\n  ${shown}`)
}

function compareMembers(tenant, people, members) {
  const found = new Set()
  const wrong = []
  for (const member of members) {
    const person = people.find(member.userId)
    if (found.has(member.userId)) wrong.push(`${member.userId} appears twice in a stream`)
    found.add(member.userId)
    if (person === undefined) {
      wrong.push(
        `${member.userId} is a member, but ${people.erased.has(member.userId) ? 'was erased' : 'is unknown'}`,
      )
      continue
    }
    const expected = {
      eventCount: person.acts + person.tracked,
      relationship: person.relationship.state,
      status: person.conversation.status,
      version: person.updates + 1,
      count: person.updates || null,
    }
    const actual = {
      eventCount: member.eventCount,
      relationship: member.relationship,
      status: member.conversation?.status ?? null,
      version: member.version,
      count: member.attributes.count ?? null,
    }
    const [want, have] = [JSON.stringify(expected), JSON.stringify(actual)]
    if (want !== have) wrong.push(`${member.userId}: acknowledged ${want}, stored ${have}`)
  }
  const missing = people.of(tenant).filter(({ isMember, userId }) => isMember && !found.has(userId))
  return [...wrong, ...missing.map(({ userId }) => `${userId} was acknowledged, and is not a member`)]
}

/**
 * Profiles still change members, and a walk leaves a member that changes meanwhile to the next one. So only what several walks
 * do not report is missing.
 */
async function compareFeed(tenant, clients) {
  for (const deadline = Date.now() + FEED_LIMIT_MS; ; await sleep(POLL_MS)) {
    const copy = await clients.feed(tenant)
    const wrong = compareCopy(tenant, await clients.stream(tenant), copy)
    if (wrong.length === 0 || Date.now() > deadline) return wrong
  }
}

/** The copy was kept by the delta feed alone. */
function compareCopy(tenant, members, copy) {
  const wrong = []
  for (const { id, version, relationship } of members) {
    const copied = copy.get(id)
    if (copied?.version !== version || copied.relationship !== relationship) {
      wrong.push(`the delta feed of account ${tenant.number} missed a change of member ${id}`)
    }
  }
  if (copy.size !== members.length) {
    wrong.push(
      `the delta feed of account ${tenant.number} has ${copy.size} members instead of ${members.length}`,
    )
  }
  return wrong
}

async function findErased(database, people) {
  const userIds = [...people.erased.keys()]
  const rows = await database.query(
    `select 'audience_member' as place, user_id from audience_member where user_id = any ($1)
      union all select 'tracked_activity', user_id from tracked_activity where user_id = any ($1)
      union all select 'event', user_id from event where user_id = any ($1)
      union all select 'tracking_event', user_id from tracking_event where user_id = any ($1)
      union all select 'the content of event ' || event.id, erased.id
                  from event join unnest($2::text[]) as erased (id) on position(erased.id in payload) > 0`,
    [userIds, userIds.slice(-READ_FOR_MAX)],
  )
  return rows.map(({ place, user_id }) => `${user_id} was erased, and is in ${place}`)
}

async function findUnsent(database, people) {
  const rows = await database.query(
    'select message_id from event where message_id = any ($1) and payload is not null',
    [[...people.unsent]],
  )
  return rows.map(({ message_id }) => `message ${message_id} was unsent, and has its content`)
}

/** Every event has a partition, and none is older than retention allows. */
async function findKeptTooLong(database) {
  const wrong = []
  for (const [table, days] of [
    ['event', EVENT_AGE_MAX_DAYS],
    ['tracking_event', TRACKING_AGE_MAX_DAYS],
  ]) {
    const [{ outside, age }] = await database.query(
      `select (select count(*)::int from ${table}_default) as outside,
              coalesce(extract(epoch from soak.now() - min(received_at)) / 86400, 0)::float8 as age from ${table}`,
    )
    if (outside > 0) wrong.push(`${outside} rows of ${table} have no partition`)
    if (age > days) wrong.push(`${table} has a row that is ${age.toFixed(1)} days old`)
  }
  return wrong
}

async function waitForEndpoints(receiver) {
  for (const deadline = Date.now() + DELIVERY_LIMIT_MS; ; await sleep(POLL_MS)) {
    const missing = receiver.missing()
    if (missing.length === 0) return
    if (Date.now() > deadline) require(missing)
  }
}
