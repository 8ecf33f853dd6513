"""Pure: row changes → keyed records, in the form that the topic contract gives them."""
