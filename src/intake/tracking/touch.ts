/** Reads where a person came from: Segment's campaign, or else the `utm_` parameters of the page. */
import { SOURCE_MAX_LENGTH } from '../../config/limits.ts'
import { isObject } from '../../http/body.ts'
import { isStorableText } from '../../postgres/storable.ts'
import { type Effect, NO_EFFECT } from '../event.ts'

/** LINE puts the parameters of a LIFF URL into this one, until `liff.init()` has ended. */
const LIFF_STATE = 'liff.state'

export function readTouch(context: unknown): Effect {
  if (!isObject(context)) return NO_EFFECT
  const { campaign, page } = context
  const { url, search } = isObject(page) ? page : {}
  return (
    (isObject(campaign) ? touchOf(campaign.source, campaign.medium, campaign.name) : null) ??
    readQuery(url) ??
    readQuery(search) ??
    NO_EFFECT
  )
}

/** @param text a URL, or its query @param isState it is the value of LIFF_STATE, which contains no other one */
function readQuery(text: unknown, isState = false): Effect | null {
  if (typeof text !== 'string') return null
  const [beforeFragment = ''] = text.split('#', 1)
  const query = new URLSearchParams(beforeFragment.slice(beforeFragment.indexOf('?') + 1))
  return (
    touchOf(query.get('utm_source'), query.get('utm_medium'), query.get('utm_campaign')) ??
    (isState ? null : readQuery(query.get(LIFF_STATE), true))
  )
}

function touchOf(...values: [source: unknown, medium: unknown, campaign: unknown]): Effect | null {
  const [source, medium, campaign] = values.map((value) => (isUsable(value) ? value : null))
  return source || campaign
    ? { type: 'touch', source: source ?? null, medium: medium ?? null, campaign: campaign ?? null }
    : null
}

/** A longer value is ignored. */
const isUsable = (value: unknown): value is string =>
  typeof value === 'string' && value !== '' && value.length <= SOURCE_MAX_LENGTH && isStorableText(value)
