/** What the simulated platform knows of an official account and the people around it. */
import { randomBytes } from 'node:crypto'
import type { AudienceSettings, SimulatedAudience } from './audiences.ts'
import { randomUserId } from './events.ts'
import { SimulatedLogin } from './login.ts'
import type { Misbehaviour } from './misbehaviour.ts'
import type { DayStatistics } from './statistics.ts'

export interface SimulatedAccount {
  channelId: string
  channelSecret: string
  channelAccessToken: string
  /** the channel of LINE Login whose ID tokens prove people */
  loginChannelId: string
  botUserId: string
  basicId: string
  displayName: string
}

export interface SimulatedPerson {
  displayName: string
  pictureUrl?: string
  language?: string
  /** follows the account; the platform shows it no profiles of other people */
  isFriend: boolean
}

export interface PlatformState {
  account: SimulatedAccount
  login: SimulatedLogin
  /** user id → person, in the order of the list of followers */
  people: Map<string, SimulatedPerson>
  /** group or room id → user ids of its members */
  groups: Map<string, Set<string>>
  settings: {
    /** verified or premium accounts may list their followers */
    isVerified: boolean
    /** the webhook as set in the LINE Developers Console; null: none is set */
    webhook: { endpoint: string; active: boolean } | null
    /** milliseconds until a webhook URL that the API sets takes effect; LINE needs up to 60,000 */
    propagationMs: number
    /** origin that receives test deliveries instead of the one of the webhook URL, which may not exist; null: that one */
    testOrigin: string | null
    /** faulty responses to the calls of this account alone; null: the documented ones */
    misbehaviour: Misbehaviour | null
    /** messages of the month; null: the plan has no limit */
    quota: { limit: number | null; used: number }
    tokenLifetimeSeconds: number
  }
  /** by id */
  audiences: Map<number, SimulatedAudience>
  audienceSettings: AudienceSettings
  /** the platform's day, as 20261122 → its figures at the end of that day */
  statistics: Map<string, DayStatistics>
  /** valid access tokens */
  tokens: Set<string>
  /** times of webhook tests, which are limited per hour */
  testsAtMs: number[]
}

/** A fictitious official account with random credentials in the documented formats. */
export function randomAccount(displayName: string): SimulatedAccount {
  return {
    channelId: randomChannelId(),
    loginChannelId: randomChannelId(),
    channelSecret: randomBytes(16).toString('hex'),
    channelAccessToken: randomBytes(96).toString('base64'),
    botUserId: randomUserId(),
    basicId: `@${randomBytes(4).toString('hex')}`,
    displayName,
  }
}

function randomChannelId(): string {
  return String(2_000_000_000 + (randomBytes(4).readUInt32BE() % 1_000_000))
}

export function initialState(account: SimulatedAccount): PlatformState {
  return {
    account,
    login: new SimulatedLogin(),
    people: new Map(),
    groups: new Map(),
    settings: {
      isVerified: true,
      webhook: null,
      propagationMs: 0,
      testOrigin: null,
      misbehaviour: null,
      quota: { limit: 1_000, used: 0 },
      tokenLifetimeSeconds: 30 * 86_400,
    },
    audiences: new Map(),
    audienceSettings: {
      ...{ readyAfterMs: 0, visibleAfterMs: 0, isRefused: false, isFailing: false },
      cut: () => null,
      lastId: 4_389_303_728_990,
    },
    statistics: new Map(),
    tokens: new Set([account.channelAccessToken]),
    testsAtMs: [],
  }
}
