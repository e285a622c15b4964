//! The address of a PostgreSQL database.

use super::draft::Draft;
use crate::document::Part;
use crate::jdbc_url::{self, encoded};
use crate::setting_text::SettingText;

/// Names of the settings of a connector for its database.
pub(super) struct Names {
    pub(super) user: &'static str,
    pub(super) password: &'static str,
}

/// A database that no plugin can reach.
pub(super) struct OtherSystem;

/// Takes `connection.url` and the login, and sets `url` of the part.
pub(super) fn from_jdbc(draft: &mut Draft<'_>, part: &mut Part) -> Result<(), OtherSystem> {
    let names = Names { user: "connection.user", password: "connection.password" };
    let Some(url) = draft.peek("connection.url").map(str::to_owned) else {
        let unknown = draft
            .unknown("POSTGRES_URL", "the address of the database, as postgresql://user:password@host:5432/database");
        part.set("url", unknown);
        draft.blocked("connection.url", "the connector has no URL of a database");
        return Ok(());
    };
    if url.starts_with("${") {
        let wanted = format!("{}_URL", draft.id());
        let meaning = "the address of the database, as postgresql://user:password@host:5432/database, with special characters as %XX";
        let variable = draft.unknown(&wanted, meaning);
        part.set("url", variable);
        draft.take("connection.url");
        draft.changed(
            "connection.url",
            &format!("{}.url", part.id),
            "the value is in a provider: write it as a URL of PostgreSQL, with user and password",
        );
        draft.leave_out(&[names.user, names.password], "the variable for the URL contains it");
        return Ok(());
    }
    let Some(url) = jdbc_url::parse(&url) else { return Err(OtherSystem) };
    draft.take("connection.url");
    let mut options = Vec::new();
    let (mut user, mut password) = (None, None);
    for (name, value) in url.options {
        match name.as_str() {
            "user" => user = Some(value),
            "password" => password = Some(value),
            "ssl" => match value.as_str() {
                "false" => options.push(("sslmode", "disable".to_owned())),
                _ => options.push(("sslmode", "verify-full".to_owned())),
            },
            "sslmode" if value == "allow" => options.push(("sslmode", "prefer".to_owned())),
            "sslmode" => options.push(("sslmode", value)),
            "sslrootcert" => options.push(("sslrootcert", value)),
            "sslcert" => options.push(("sslcert", value)),
            "sslkey" => {
                draft.blocked(
                    "connection.url",
                    "sslkey of the JDBC driver is a key in DER: convert it to PEM, and add it as sslkey",
                );
            }
            "currentSchema" => draft.unsure(
                "connection.url",
                &format!("{}.url", part.id),
                "the option currentSchema of the URL is not carried over: write tables as schema.table",
            ),
            _ => draft.left_out("connection.url", "an option of the URL has no counterpart, and is left out"),
        }
    }
    options.dedup_by(|a, b| a.0 == b.0);
    let login = Login { names: &names, user, password };
    let url = login.url(draft, &url.address.as_str().into(), &url.database.as_str().into(), &options);
    part.set("url", url);
    draft.carried("connection.url", &format!("{}.url", part.id));
    Ok(())
}

/// A user with a password.
pub(super) struct Login<'n> {
    pub(super) names: &'n Names,
    /// The user of the URL, if it has one.
    pub(super) user: Option<String>,
    /// The password of the URL, if it has one.
    pub(super) password: Option<String>,
}

impl Login<'_> {
    /// Returns a URL with the user and a variable for the password.
    pub(super) fn url(
        self,
        draft: &mut Draft<'_>,
        address: &SettingText,
        database: &SettingText,
        options: &[(&'static str, String)],
    ) -> SettingText {
        let Names { user: user_name, password: password_name } = *self.names;
        let own_user = draft.take(user_name);
        if own_user.is_some() {
            draft.carried(user_name, "the URL of the database");
        }
        let mut url = SettingText::literal("postgresql://");
        if let Some(user) = own_user.or(self.user) {
            let user = draft.text(user_name, &user);
            url.push(&encoded(&user));
            let own_password = draft.take(password_name);
            if own_password.is_some() {
                draft.carried(password_name, "the URL of the database");
            }
            if let Some(password) = own_password.or(self.password) {
                let meaning = "the password of the database, with special characters as %XX";
                let password = draft.secret(password_name, &password, meaning);
                url.push(&":".into());
                url.push(&password);
            }
            url.push(&"@".into());
        }
        draft.leave_out(&[password_name], "a password needs a user");
        url.push(address);
        url.push(&"/".into());
        url.push(&encoded(database));
        for (index, (name, value)) in options.iter().enumerate() {
            url.push(&if index == 0 { "?" } else { "&" }.into());
            url.push(&(*name).into());
            url.push(&"=".into());
            let value = draft.text("connection.url", value);
            url.push(&encoded(&value));
        }
        url
    }
}

/// Returns why a database of another system cannot be migrated.
pub(super) fn other_system(url: &str) -> String {
    let system: String = jdbc_url::system(url).chars().filter(char::is_ascii_alphanumeric).take(30).collect();
    format!("the plugins reach PostgreSQL, and this is {system}: keep the connector, or write a standalone connector")
}
