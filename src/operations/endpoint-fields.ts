/** The fields of an endpoint, as operations take them. */
import { Type } from '../http/typebox.ts'
import {
  AllowPrivateNetwork,
  ConditionField,
  Default,
  DisplayName,
  orNull,
  partial,
  ShortText,
  Url,
} from './fields.ts'

const [INT4_MIN, INT4_MAX] = [-(2 ** 31), 2 ** 31 - 1]

export const SETTINGS = {
  name: DisplayName,
  events: orNull(
    Type.Array(ShortText, {
      maxItems: 100,
      description: 'event types, separated by commas, or `all`; events that are queued stay',
    }),
    'all',
  ),
  condition: orNull(ConditionField, 'all'),
  replies: Type.Boolean({
    description: 'may reply: of such endpoints, the first by priority receives the reply token of an event',
    not: 'receive no reply tokens',
  }),
  priority: Type.Integer({
    minimum: INT4_MIN,
    maximum: INT4_MAX,
    description:
      'the lowest number replies first; among equal ones, the endpoint that was added first (default: 0)',
  }),
  allowPrivateNetwork: AllowPrivateNetwork,
}
export const EndpointUrl = Url('https:// URL that receives the webhooks')
const Format = Type.Enum(['line', 'members'], {
  description: 'line: events as LINE sends them; members: changes of the audience, by Standard Webhooks',
})

export const NEW_ENDPOINT = {
  url: EndpointUrl,
  format: Default(Format, 'line'),
  name: Default(SETTINGS.name, ''),
  events: Default(SETTINGS.events, null),
  condition: Default(SETTINGS.condition, null),
  replies: Default(SETTINGS.replies, false),
  priority: Default(SETTINGS.priority, 0),
  allowPrivateNetwork: Default(SETTINGS.allowPrivateNetwork, false),
}

/** The settings of which an operator can see the effect before the change. */
export const REHEARSED = partial({
  condition: SETTINGS.condition,
  replies: SETTINGS.replies,
  priority: SETTINGS.priority,
})
