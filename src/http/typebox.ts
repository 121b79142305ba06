/**
 * What this service uses of TypeBox. The build puts TypeBox into this one file: its 683 modules take longer to load than all others
 * together.
 */
export type { Static, TSchema } from 'typebox'
export { default as Type } from 'typebox'
export { Compile } from 'typebox/compile'
export type { TLocalizedValidationError } from 'typebox/error'
export { Settings } from 'typebox/system'
