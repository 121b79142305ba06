/** The forms of the console that change stored fields, and their files below web/, by what they send. */
export const EDITING_FORMS = {
  'organization.rename': 'pages/organizations.tsx',
  'account.update': 'pages/edit-account.tsx',
  'endpoint.update': 'parts/endpoint-form.tsx',
  'segment.update': 'parts/segments.tsx',
  'channel.update': 'parts/channel-form.tsx',
  'operator.update': 'parts/operators.tsx',
  'account.update-member': 'parts/member-form.tsx',
}
export type EditingForm = keyof typeof EDITING_FORMS
